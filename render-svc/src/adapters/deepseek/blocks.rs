//! Messages in the form that the encoders read: lists of blocks joined to text, with calls and
//! results as separate messages.

use std::borrow::Cow;

use serde_json::{Value, json};
use tandem_common::field::Path;
use tandem_common::status::Reason;
use tandem_template::python;

use crate::conversation::media;
use crate::conversation::{Content, Invalid, Object, block_text, blocks, content, kind, unknown_block};
use crate::walk::{At, Part};
use crate::warning::{self, Warning};

/// A message in the form that an encoder reads.
#[derive(Debug)]
pub(super) struct Item<'a> {
    /// The place of its message in the request.
    at: At<'static>,
    /// The index of the block that the request has for it, if it is no message there.
    pub block: Option<usize>,
    pub message: Cow<'a, Value>,
}

impl Item<'_> {
    /// Returns its path in the request.
    pub(super) fn path(&self) -> Path {
        self.block.map_or_else(|| self.at.path(), |block| self.at.item("content", block).path())
    }
}

/// How an encoder's adapter reads messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As they are, as the official encoder reads them.
    Verbatim,
    /// Converted: every list of text blocks becomes text. The assistant's `tool_use` blocks become
    /// calls of its message, and `tool_result` blocks become messages of the tool before the rest of
    /// their message. Missing content becomes empty text, where the encoder would write `None`.
    Joined,
    /// The same, except that a list of text blocks in a result stays, because the encoder joins it.
    JoinedButResults,
}

/// Returns the messages in the form that an encoder reads.
///
/// # Errors
/// A message that is no object. Unless they are read verbatim, content of another type and blocks that
/// the encoders cannot show, by path.
pub(super) fn read<'a>(list: &'static str, messages: &'a [Value], reading: Reading) -> Result<Vec<Item<'a>>, Invalid> {
    let mut items = Vec::with_capacity(messages.len());
    for (i, message) in messages.iter().enumerate() {
        let at = At::new(list, i);
        let Value::Object(fields) = message else { return Err(Invalid::new(at.path(), "must be an object")) };
        match reading {
            Reading::Verbatim => items.push(Item { at, block: None, message: Cow::Borrowed(message) }),
            _ => items.extend(converted(at, message, fields, reading)?),
        }
    }
    Ok(items)
}

/// Returns a warning for each key of a message that [`read`] replaces by messages of the tool.
pub(super) fn lost_keys(list: &'static str, messages: &[Value], reading: Reading) -> Vec<Warning> {
    let messages = messages.iter().enumerate().filter(|_| reading != Reading::Verbatim);
    let warnings =
        |(i, message)| warning::keys_of_results(&At::new(list, i), Part::Message(message)).collect::<Vec<_>>();
    messages.flat_map(warnings).collect()
}

/// Returns true for a tool message with a media block without data, such as `{"type": "image"}`.
/// The official encoders write a text for it.
pub(super) fn has_placeholder(message: &Value) -> bool {
    let blocks = blocks(message);
    role(message) == "tool"
        && blocks.iter().any(is_placeholder)
        && blocks.iter().all(|block| is_placeholder(block) || is_bare_text(block))
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

/// Roles whose content the encoders print, `None` included.
const PRINTED_ROLES: [&str; 3] = ["user", "tool", "latest_reminder"];

fn converted<'a>(
    at: At<'static>,
    message: &'a Value,
    fields: &'a Object,
    reading: Reading,
) -> Result<Vec<Item<'a>>, Invalid> {
    let whole = |message| Ok(vec![Item { at, block: None, message }]);
    match content(message) {
        Content::Null if PRINTED_ROLES.contains(&role(message)) => whole(Cow::Owned(with_content(fields, "".into()))),
        Content::Blocks(blocks) if !has_placeholder(message) => {
            if role(message) == "tool" && stays_list(blocks, reading) {
                joined(blocks).map_err(|e| e.within(at.path()))?;
                return whole(Cow::Borrowed(message));
            }
            Blocks::read(blocks, role(message), at, fields, reading)?.into_items(at, fields)
        }
        Content::Null | Content::Text(_) | Content::Blocks(_) => whole(Cow::Borrowed(message)),
        Content::Other(_) => Err(wrong_content().within(at.path())),
    }
}

fn with_content(fields: &Object, content: Value) -> Value {
    let mut message = fields.clone();
    message.insert("content".to_owned(), content);
    Value::Object(message)
}

/// Returns true if the content of a result stays a list.
fn stays_list(blocks: &[Value], reading: Reading) -> bool {
    reading == Reading::JoinedButResults && blocks.iter().all(|block| kind(block) == Some("text"))
}

/// Joins text blocks. Fails for other blocks.
fn joined(blocks: &[Value]) -> Result<String, Invalid> {
    blocks.iter().enumerate().map(|(i, block)| text_of(block, i)).collect()
}

fn wrong_content() -> Invalid {
    Invalid::new("content", "must be text or a list of blocks")
}

/// The blocks of one message by their kind.
#[derive(Debug, Default)]
struct Blocks {
    text: String,
    has_text: bool,
    calls: Vec<Value>,
    results: Vec<Item<'static>>,
}

impl Blocks {
    fn read(blocks: &[Value], role: &str, at: At<'static>, fields: &Object, reading: Reading) -> Result<Self, Invalid> {
        let mut parts = Self::default();
        // A message of the tool has more keys, such as its call's id.
        let keys = if role == "tool" { fields.clone() } else { Object::new() };
        for (i, block) in blocks.iter().enumerate() {
            match (kind(block), role) {
                (Some("tool_use"), "assistant") => parts.calls.push(call(block, at.item("content", i))?),
                (Some("tool_result"), "user" | "tool") => {
                    let message = result(block, &keys, reading).map_err(|e| e.within(at.item("content", i).path()))?;
                    parts.results.push(Item { at, block: Some(i), message: Cow::Owned(message) });
                }
                _ => {
                    parts.text.push_str(text_of(block, i).map_err(|e| e.within(at.path()))?);
                    parts.has_text = true;
                }
            }
        }
        if role == "tool" && parts.has_text && !parts.results.is_empty() {
            let problem = "must hold text blocks or tool_result blocks, not both, in a message of the tool";
            return Err(at.invalid("content", problem));
        }
        Ok(parts)
    }

    /// Returns the results first, because they answer the message before.
    fn into_items<'a>(self, at: At<'static>, fields: &Object) -> Result<Vec<Item<'a>>, Invalid> {
        let mut items: Vec<Item<'a>> = self.results;
        if self.has_text || items.is_empty() {
            let mut message = with_content(fields, self.text.into());
            add_calls(&mut message, self.calls).map_err(|e| e.within(at.path()))?;
            items.push(Item { at, block: None, message: Cow::Owned(message) });
        }
        Ok(items)
    }
}

fn add_calls(message: &mut Value, calls: Vec<Value>) -> Result<(), Invalid> {
    if calls.is_empty() {
        return Ok(());
    }
    match message.get_mut("tool_calls") {
        Some(Value::Array(earlier)) => earlier.extend(calls),
        Some(other) if python::is_true(other) => return Err(Invalid::new("tool_calls", "must be a list")),
        _ => message["tool_calls"] = calls.into(),
    }
    Ok(())
}

/// Converts a `tool_use` block to a call.
fn call(block: &Value, at: At<'_>) -> Result<Value, Invalid> {
    let name = block["name"].as_str().filter(|name| !name.is_empty());
    let Some(name) = name else { return Err(at.invalid("name", "must be a string that is not empty")) };
    let arguments = match &block["input"] {
        Value::Null => "{}".to_owned(),
        input @ Value::Object(_) => python::dumps(input),
        _ => return Err(at.invalid("input", "must be a JSON object")),
    };
    Ok(json!({"id": block["id"], "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// Converts a `tool_result` block to a tool message, which has these keys besides those of the block.
fn result(block: &Value, keys: &Object, reading: Reading) -> Result<Value, Invalid> {
    let text = result_text(block)?;
    let content = match content(block) {
        Content::Blocks(blocks) if stays_list(blocks, reading) => Value::from(blocks),
        _ => text.into(),
    };
    let mut message = with_content(keys, content);
    message["role"] = "tool".into();
    if !block["tool_use_id"].is_null() {
        message["tool_call_id"] = block["tool_use_id"].clone();
    }
    Ok(message)
}

fn result_text(block: &Value) -> Result<String, Invalid> {
    match content(block) {
        Content::Null => Ok(String::new()),
        Content::Text(text) => Ok(text.to_owned()),
        Content::Blocks(blocks) => joined(blocks),
        Content::Other(_) => Err(wrong_content()),
    }
}

/// Returns the text of the text block at index `i`. Fails for other blocks.
fn text_of(block: &Value, i: usize) -> Result<&str, Invalid> {
    match kind(block) {
        Some("text") => block_text(block, i),
        Some(kind) if media::kind(block).is_some() => Err(Invalid {
            reason: Reason::UnknownBlock,
            field: Path::item("content", i),
            problem: format!("blocks of type {kind:?} cannot be rendered: models of this family read nothing but text"),
        }),
        _ => Err(unknown_block(block, Path::item("content", i))),
    }
}
