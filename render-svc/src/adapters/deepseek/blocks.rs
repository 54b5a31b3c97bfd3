//! Lists of blocks in the form that the encoders read: joined to text, with calls and results as
//! separate messages.

use std::borrow::Cow;

use serde_json::{Value, json};
use tandem_common::status::Reason;
use tandem_template::python;

use crate::conversation::media;
use crate::conversation::{Content, Invalid, Object, block_text, blocks, content, kind, unknown_block};

/// A message in the form that an encoder reads.
#[derive(Debug)]
pub(super) struct Item<'a> {
    /// Its path in the request.
    pub path: String,
    pub message: Cow<'a, Value>,
    /// True if the request has it as a block of a message.
    pub is_block: bool,
}

impl<'a> Item<'a> {
    fn whole(path: &str, message: Cow<'a, Value>) -> Self {
        Self { path: path.to_owned(), message, is_block: false }
    }
}

/// Joins every list of text blocks to text. The assistant's `tool_use` blocks become calls of its
/// message, and `tool_result` blocks become messages of the tool before the rest of their message.
///
/// # Errors
/// Content of another type and blocks that the encoders cannot show, by path.
pub(super) fn expanded<'a>(path: &str, messages: &'a [Value]) -> Result<Vec<Item<'a>>, Invalid> {
    let items = each(path, messages).map(|(path, message)| expand(&path, message));
    Ok(items.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// The same, except that lists of text blocks in a tool message stay, because the encoder joins
/// them.
///
/// # Errors
/// As [`expanded`].
pub(super) fn expanded_around_tools<'a>(path: &str, messages: &'a [Value]) -> Result<Vec<Item<'a>>, Invalid> {
    let is_list =
        |message: &Value| role(message) == "tool" && blocks(message).iter().all(|block| kind(block) == Some("text"));
    let items = each(path, messages).map(|(path, message)| {
        if is_list(message) { check(&path, message).map(|item| vec![item]) } else { expand(&path, message) }
    });
    Ok(items.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Checks every message and keeps it as it is.
///
/// # Errors
/// Content that is neither text nor, in a tool message, a list of text blocks and media blocks
/// without data, by path.
pub(super) fn checked<'a>(path: &str, messages: &'a [Value]) -> Result<Vec<Item<'a>>, Invalid> {
    each(path, messages).map(|(path, message)| check(&path, message)).collect()
}

/// Returns true for a tool message with a media block without data, such as `{"type": "image"}`.
/// The official encoders write a text for it.
pub(super) fn has_placeholder(message: &Value) -> bool {
    let blocks = blocks(message);
    role(message) == "tool"
        && blocks.iter().any(is_placeholder)
        && blocks.iter().all(|block| is_placeholder(block) || is_bare_text(block))
}

fn each<'a>(path: &str, messages: &'a [Value]) -> impl Iterator<Item = (String, &'a Value)> {
    messages.iter().enumerate().map(move |(i, message)| (format!("{path}[{i}]"), message))
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

fn is_placeholder(block: &Value) -> bool {
    let is_alone = block.as_object().is_some_and(|block| block.len() == 1);
    is_alone && matches!(kind(block), Some("image" | "audio" | "video"))
}

fn is_bare_text(block: &Value) -> bool {
    let is_all = block.as_object().is_some_and(|block| block.len() == 2);
    is_all && kind(block) == Some("text") && block_text(block, 0).is_ok()
}

fn expand<'a>(path: &str, message: &'a Value) -> Result<Vec<Item<'a>>, Invalid> {
    match (blocks_of(path, message)?, message) {
        (Some(blocks), Value::Object(fields)) if !has_placeholder(message) => {
            Parts::read(blocks, role(message), path)?.into_items(path, fields)
        }
        _ => Ok(vec![Item::whole(path, Cow::Borrowed(message))]),
    }
}

fn check<'a>(path: &str, message: &'a Value) -> Result<Item<'a>, Invalid> {
    if let Some(blocks) = blocks_of(path, message)? {
        blocks.iter().enumerate().try_for_each(|(i, block)| check_block(block, i)).map_err(|e| e.within(path))?;
        if role(message) != "tool" {
            let problem = "must be text: this family's encoder takes a list of blocks only from tools";
            return Err(Invalid::new(format!("{path}.content"), problem));
        }
    }
    Ok(Item::whole(path, Cow::Borrowed(message)))
}

fn check_block(block: &Value, i: usize) -> Result<(), Invalid> {
    if is_placeholder(block) { Ok(()) } else { text_of(block, i).map(|_| ()) }
}

/// Returns a message's blocks; None for text.
fn blocks_of<'a>(path: &str, message: &'a Value) -> Result<Option<&'a [Value]>, Invalid> {
    match content(message) {
        _ if !message.is_object() => Err(Invalid::new(path, "must be an object")),
        Content::Null | Content::Text(_) => Ok(None),
        Content::Blocks(blocks) => Ok(Some(blocks)),
        Content::Other(_) => Err(wrong_content().within(path)),
    }
}

fn wrong_content() -> Invalid {
    Invalid::new("content", "must be text or a list of blocks")
}

/// The blocks of one message by their kind.
#[derive(Debug, Default)]
struct Parts {
    text: String,
    has_text: bool,
    calls: Vec<Value>,
    results: Vec<Item<'static>>,
}

impl Parts {
    fn read(blocks: &[Value], role: &str, path: &str) -> Result<Self, Invalid> {
        let mut parts = Self::default();
        for (i, block) in blocks.iter().enumerate() {
            parts.add(block, i, role, path).map_err(|e| e.within(path))?;
        }
        if role == "tool" && parts.has_text && !parts.results.is_empty() {
            let problem = "must hold text blocks or tool_result blocks, not both, in a message of the tool";
            return Err(Invalid::new(format!("{path}.content"), problem));
        }
        Ok(parts)
    }

    fn add(&mut self, block: &Value, i: usize, role: &str, path: &str) -> Result<(), Invalid> {
        match (kind(block), role) {
            (Some("tool_use"), "assistant") => self.calls.push(call(block, i)?),
            (Some("tool_result"), "user" | "tool") => {
                let message = Cow::Owned(result(block, i)?);
                self.results.push(Item { path: format!("{path}.content[{i}]"), message, is_block: true });
            }
            _ => {
                self.text.push_str(text_of(block, i)?);
                self.has_text = true;
            }
        }
        Ok(())
    }

    /// Returns the results first, because they answer the message before.
    fn into_items<'a>(self, path: &str, fields: &Object) -> Result<Vec<Item<'a>>, Invalid> {
        let mut items: Vec<Item<'a>> = self.results;
        if self.has_text || items.is_empty() {
            let mut message = fields.clone();
            message.insert("content".to_owned(), self.text.into());
            add_calls(&mut message, self.calls).map_err(|e| e.within(path))?;
            items.push(Item::whole(path, Cow::Owned(Value::Object(message))));
        }
        Ok(items)
    }
}

fn add_calls(message: &mut Object, calls: Vec<Value>) -> Result<(), Invalid> {
    if calls.is_empty() {
        return Ok(());
    }
    match message.get_mut("tool_calls") {
        Some(Value::Array(earlier)) => earlier.extend(calls),
        Some(other) if python::is_true(other) => return Err(Invalid::new("tool_calls", "must be a list")),
        _ => {
            message.insert("tool_calls".to_owned(), calls.into());
        }
    }
    Ok(())
}

/// Converts a `tool_use` block to a call.
fn call(block: &Value, i: usize) -> Result<Value, Invalid> {
    let invalid = |key: &str, problem: &str| Invalid::new(format!("content[{i}].{key}"), problem);
    let Some(name) = block["name"].as_str() else { return Err(invalid("name", "must be a string")) };
    let arguments = match &block["input"] {
        Value::Null => "{}".to_owned(),
        input @ Value::Object(_) => python::dumps(input),
        _ => return Err(invalid("input", "must be a JSON object")),
    };
    Ok(json!({"id": block["id"], "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// Converts a `tool_result` block to a tool message.
fn result(block: &Value, i: usize) -> Result<Value, Invalid> {
    let text = result_text(block).map_err(|e| e.within(&format!("content[{i}]")))?;
    Ok(json!({"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}))
}

fn result_text(block: &Value) -> Result<Cow<'_, str>, Invalid> {
    match content(block) {
        Content::Null => Ok(Cow::Borrowed("")),
        Content::Text(text) => Ok(Cow::Borrowed(text)),
        Content::Blocks(blocks) => {
            let texts = blocks.iter().enumerate().map(|(i, block)| text_of(block, i));
            Ok(Cow::Owned(texts.collect::<Result<_, _>>()?))
        }
        Content::Other(_) => Err(wrong_content()),
    }
}

/// Returns the text of the text block at index `i`. Fails for other blocks.
fn text_of(block: &Value, i: usize) -> Result<&str, Invalid> {
    match kind(block) {
        Some("text") => block_text(block, i),
        Some(kind) if media::kind(block).is_some() => Err(Invalid {
            reason: Reason::UnknownBlock,
            field: format!("content[{i}]"),
            problem: format!("blocks of type {kind:?} cannot be rendered: models of this family read nothing but text"),
        }),
        _ => Err(unknown_block(block, i)),
    }
}
