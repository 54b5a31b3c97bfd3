//! The domain: a conversation as the JSON that every chat template is written against, with typed views over it. Key order and
//! number spelling are kept, since both reach the prompt. Knows nothing of tonic.

use serde_json::{Map, Value};

/// A JSON object that keeps its key order.
pub type Object = Map<String, Value>;

/// All that a prompt is made from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// JSON objects, in order.
    pub messages: Vec<Value>,
    /// A JSON list; None is "no tools", which templates tell from an empty list.
    pub tools: Option<Value>,
    /// A JSON list; None is "no documents".
    pub documents: Option<Value>,
    /// Extra template variables.
    pub template_args: Object,
}

/// A part of a conversation that does not have the shape it must have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// The path, such as `messages[2].content[0].image`.
    pub field: String,
    /// What is wrong, and what is wanted.
    pub problem: String,
}

impl Invalid {
    /// Blames `field`.
    #[must_use]
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// The same with its path inside `parent`.
    #[must_use]
    pub fn within(self, parent: &str) -> Self {
        Self { field: format!("{parent}.{}", self.field), problem: self.problem }
    }
}

impl Conversation {
    /// Checks what every adapter relies on: each message is an object; tools and documents are lists.
    ///
    /// # Errors
    /// The first part that is wrong, by path.
    pub fn check(&self) -> Result<(), Invalid> {
        for (i, message) in self.messages.iter().enumerate() {
            if !message.is_object() {
                return Err(Invalid::new(format!("messages[{i}]"), "must be an object with a role and content"));
            }
        }
        check_list("tools", self.tools.as_ref())?;
        check_list("documents", self.documents.as_ref())
    }

    /// Checks that something is said. Only a family's own encoder knows what it means when nothing is.
    ///
    /// # Errors
    /// There is no message.
    pub fn check_not_empty(&self) -> Result<(), Invalid> {
        match self.messages.is_empty() {
            true => Err(Invalid::new("messages", "must hold at least one message")),
            false => Ok(()),
        }
    }

    /// Whether any message holds an image block.
    #[must_use]
    pub fn has_images(&self) -> bool {
        self.messages.iter().flat_map(blocks).any(|block| kind(block) == Some("image"))
    }
}

fn check_list(field: &str, value: Option<&Value>) -> Result<(), Invalid> {
    match value {
        None | Some(Value::Array(_)) => Ok(()),
        Some(_) => Err(Invalid::new(field, "must be a list")),
    }
}

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content<'a> {
    /// null, or no content key.
    Null,
    /// Plain text.
    Text(&'a str),
    /// Typed blocks.
    Blocks(&'a [Value]),
    /// Any other JSON value, which only a template can make sense of.
    Other(&'a Value),
}

/// A message's content.
#[must_use]
pub fn content(message: &Value) -> Content<'_> {
    match message.get("content") {
        None | Some(Value::Null) => Content::Null,
        Some(Value::String(text)) => Content::Text(text),
        Some(Value::Array(blocks)) => Content::Blocks(blocks),
        Some(other) => Content::Other(other),
    }
}

/// A message's blocks; none for plain text.
pub fn blocks(message: &Value) -> &[Value] {
    match content(message) {
        Content::Blocks(blocks) => blocks,
        _ => &[],
    }
}

/// A block's kind, such as "text" or "image".
#[must_use]
pub fn kind(block: &Value) -> Option<&str> {
    block.get("type")?.as_str()
}

/// Joins a list of blocks to text: texts as they are, an image as `<image>`.
///
/// # Errors
/// A block of another kind, by path.
pub fn blocks_to_text(blocks: &[Value]) -> Result<String, Invalid> {
    let mut text = String::new();
    for (i, block) in blocks.iter().enumerate() {
        match kind(block) {
            Some("text") => text.push_str(block_text(block, i)?),
            Some("image") => text.push_str("<image>"),
            _ => return Err(unknown_block(block, i)),
        }
    }
    Ok(text)
}

/// The text of a text block at index `i`.
///
/// # Errors
/// It has none.
pub fn block_text(block: &Value, i: usize) -> Result<&str, Invalid> {
    block
        .get("text")
        .and_then(Value::as_str)
        .ok_or_else(|| Invalid::new(format!("content[{i}].text"), "must be a string"))
}

/// Refuses the block at index `i` by name.
#[must_use]
pub fn unknown_block(block: &Value, i: usize) -> Invalid {
    let problem = match kind(block) {
        Some(kind) => format!("blocks of type {kind:?} cannot be rendered here"),
        None => "must be an object with a \"type\"".to_owned(),
    };
    Invalid::new(format!("content[{i}]"), problem)
}
