//! A conversation as the JSON that chat templates are written against, with typed views over it.
//!
//! Key order and number spelling are kept, because both reach the prompt. This module imports
//! neither tonic nor protobuf.

use serde_json::{Map, Value};
use tandem_common::field::{Path, Step, Steps};
use tandem_common::status::Reason;
pub use tandem_template::literal::{FIELDS, ROLES};
pub use tandem_template::media;

use self::media::MediaKind;

/// A JSON object that keeps its key order.
pub type Object = Map<String, Value>;

/// The field of a message that a request continues unless it names another one.
pub const CONTENT: &str = "content";

/// The field of a message's reasoning in requests.
pub const REASONING_CONTENT: &str = "reasoning_content";

/// Fields of tools, of their calls and of the results.
pub const TOOL_FIELDS: &[&str] = &[
    "tool_calls",
    "function",
    "name",
    "id",
    "arguments",
    "description",
    "parameters",
    "properties",
    "required",
    "input",
    "tool_call_id",
    "tool_use_id",
];

/// The input of a prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// JSON objects, in order.
    pub messages: Vec<Value>,
    /// A JSON list. None means no tools, which templates distinguish from an empty list.
    pub tools: Option<Value>,
    /// A JSON list. None means no documents.
    pub documents: Option<Value>,
    /// Extra template variables.
    pub template_args: Object,
}

/// The keys of a message's reasoning, of which templates read the first that is given.
pub const REASONING_KEYS: [&str; 3] = [REASONING_CONTENT, "thinking", "reasoning"];

/// An error about a part of a request with a wrong shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// The reason for programs; nearly always `INVALID_REQUEST`.
    pub reason: Reason,
    /// The path, such as `messages[2].content[0].image`.
    pub field: Path,
    /// The problem and the expected value.
    pub problem: String,
}

impl Invalid {
    /// Creates an error about `field`.
    #[must_use]
    pub fn new(field: impl Into<Path>, problem: impl Into<String>) -> Self {
        Self { reason: Reason::InvalidRequest, field: field.into(), problem: problem.into() }
    }

    /// Returns the same error with its path inside `outer`. An error without a path is about `outer`
    /// itself.
    #[must_use]
    pub fn within(self, outer: impl Into<Path>) -> Self {
        Self { field: self.field.within(outer), ..self }
    }
}

impl Conversation {
    /// Checks that there is a message. Only a family's encoder defines a prompt without messages.
    ///
    /// # Errors
    /// There is no message.
    pub fn check_not_empty(&self) -> Result<(), Invalid> {
        if self.messages.is_empty() { Err(Invalid::new("messages", "must hold at least one message")) } else { Ok(()) }
    }

    /// Returns the conversation with these messages.
    #[must_use]
    pub fn with_messages(&self, messages: Vec<Value>) -> Self {
        let Self { messages: _, tools, documents, template_args } = self;
        let (tools, documents, template_args) = (tools.clone(), documents.clone(), template_args.clone());
        Self { messages, tools, documents, template_args }
    }

    /// Takes out the field or the item of a list to which steps lead.
    pub fn remove(&mut self, steps: &Steps<'_>) {
        let (holder, last, way) = match steps {
            [Step::Key("messages"), Step::Index(i), way @ .., last] => (self.messages.get_mut(*i), last, way),
            [Step::Key("tools"), way @ .., last] => (self.tools.as_mut(), last, way),
            _ => return,
        };
        match (holder.and_then(|holder| find(holder, way)), last) {
            (Some(Value::Object(fields)), Step::Key(key)) => _ = fields.shift_remove(*key),
            (Some(Value::Array(items)), Step::Index(index)) if *index < items.len() => _ = items.remove(*index),
            _ => {}
        }
    }

    /// Returns true if there is a tool.
    #[must_use]
    pub fn has_tools(&self) -> bool {
        has_items(self.tools.as_ref())
    }

    /// Returns true if there is a document.
    #[must_use]
    pub fn has_documents(&self) -> bool {
        has_items(self.documents.as_ref())
    }
}

fn has_items(list: Option<&Value>) -> bool {
    list.and_then(Value::as_array).is_some_and(|items| !items.is_empty())
}

/// Returns the value to which steps lead from another one.
pub fn find<'v>(value: &'v mut Value, steps: &Steps<'_>) -> Option<&'v mut Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    })
}

/// Returns true if a message or tool result has an image, also inside a tool result.
#[must_use]
pub fn has_image(holder: &Value) -> bool {
    blocks(holder).iter().any(|block| is_image(block) || has_image(block))
}

/// Returns true if the block is an image in any of its spellings: `image`, or `image_url` and
/// `input_image` of OpenAI's APIs.
#[must_use]
pub fn is_image(block: &Value) -> bool {
    media::kind(block) == Some(MediaKind::Image)
}

/// The content of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content<'a> {
    /// Null, or no `content` key.
    Null,
    /// Plain text.
    Text(&'a str),
    /// Typed blocks.
    Blocks(&'a [Value]),
    /// Any other JSON value, which only a template can interpret.
    Other(&'a Value),
}

/// Returns a message's content.
#[must_use]
pub fn content(message: &Value) -> Content<'_> {
    match message.get("content") {
        None | Some(Value::Null) => Content::Null,
        Some(Value::String(text)) => Content::Text(text),
        Some(Value::Array(blocks)) => Content::Blocks(blocks),
        Some(other) => Content::Other(other),
    }
}

/// Returns a message's blocks; none for plain text.
pub fn blocks(message: &Value) -> &[Value] {
    match content(message) {
        Content::Blocks(blocks) => blocks,
        _ => &[],
    }
}

/// Returns a block's type, such as "text" or "image".
#[must_use]
pub fn kind(block: &Value) -> Option<&str> {
    block.get("type")?.as_str()
}

/// Returns the function of a tool or call, and the steps to it. `{"function": …}` around it is optional.
#[must_use]
pub fn function(value: &Value) -> (&'static Steps<'static>, &Value) {
    match value.get("function") {
        Some(function) => (&[Step::Key("function")], function),
        None => (&[], value),
    }
}

/// Returns a message's content as text. `join` converts its blocks.
///
/// # Errors
/// An error of `join`, or the content is neither text nor blocks.
pub fn text(message: &Value, join: impl FnOnce(&[Value]) -> Result<String, Invalid>) -> Result<String, Invalid> {
    match content(message) {
        Content::Null => Ok(String::new()),
        Content::Text(text) => Ok(text.to_owned()),
        Content::Blocks(blocks) => join(blocks),
        Content::Other(_) => Err(Invalid::new("content", "must be text or a list of blocks")),
    }
}

/// Joins a list of blocks to text. An image becomes `<image>`.
///
/// # Errors
/// A block of another type, by path.
pub fn blocks_to_text(blocks: &[Value]) -> Result<String, Invalid> {
    let mut text = String::new();
    for (i, block) in blocks.iter().enumerate() {
        push_block(&mut text, block, i)?;
    }
    Ok(text)
}

/// Appends the block at index `i` to a text, as [`blocks_to_text`] does.
///
/// # Errors
/// The block has another type.
pub fn push_block(text: &mut String, block: &Value, i: usize) -> Result<(), Invalid> {
    match kind(block) {
        Some("text") => text.push_str(block_text(block, i)?),
        _ if is_image(block) => text.push_str("<image>"),
        _ => return Err(unknown_block(block, Path::item(CONTENT, i))),
    }
    Ok(())
}

/// Returns the text of the text block at index `i`.
///
/// # Errors
/// The block has no text.
pub fn block_text(block: &Value, i: usize) -> Result<&str, Invalid> {
    block
        .get("text")
        .and_then(Value::as_str)
        .ok_or_else(|| Invalid::new(Path::item(CONTENT, i).key("text"), "must be a string"))
}

/// Returns an error that names the type of the block at a path.
#[must_use]
pub fn unknown_block(block: &Value, field: Path) -> Invalid {
    match kind(block) {
        Some(kind) => {
            let problem = format!(
                "blocks of type {kind:?} cannot be rendered for this model; text blocks can, and the types that its \
                 template or adapter writes"
            );
            Invalid { reason: Reason::UnknownBlock, field, problem }
        }
        None => Invalid::new(field, "must be an object with a \"type\""),
    }
}

/// Returns the name of a message's author. The name of a result is its call's.
#[must_use]
pub fn author(message: &Value) -> Option<&str> {
    let is_result = message.get("role").is_some_and(|role| role == "tool" || role == "function");
    let name = message.get("name").and_then(Value::as_str).filter(|name| !name.trim().is_empty());
    name.filter(|_| !is_result)
}

/// Returns the reasoning of a message under each of its keys. A text that an earlier key has is left out.
pub fn reasonings(message: &Value) -> impl Iterator<Item = (&'static str, &str)> {
    let of_key = |key: &'static str| Some((key, message.get(key)?.as_str()?));
    let is_repeated = move |(key, text): &(&'static str, &str)| {
        let before = REASONING_KEYS.into_iter().take_while(|before| before != key);
        before.filter_map(of_key).any(|(_, before)| before == *text)
    };
    REASONING_KEYS.into_iter().filter_map(of_key).filter(move |reasoning| !is_repeated(reasoning))
}
