//! The types of blocks that a template distinguishes. A template would print a block of any other
//! type as Python prints an object, or lose it.
//!
//! A template distinguishes a type if it renders a block of this type in another way than the same
//! block with a made-up type. Both are rendered in small conversations, and in the request's.

use serde_json::{Value, json};

use super::typed_blocks::TOOL_USE;
use crate::adapter::{Adapter, Input};
use crate::conversation::{Invalid, blocks_to_text, kind, unknown_block};
use crate::model::Model;
use crate::walk::{Part, walk};

/// A made-up type.
const NO_TYPE: &str = "tandem-no-type-of-block";

/// A text that no template writes.
const MARK: &str = "qzwordsinside";

/// Longer texts in a block are shortened for small conversations.
const MAX_TEXT: usize = 64;

/// A template with the inputs of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe<'a> {
    /// The adapter that renders with the template.
    pub(super) adapter: &'a Adapter,
    pub(super) model: &'a Model,
    /// The request.
    pub(super) input: Input<'a>,
}

/// A rendered prompt, or the text of an error.
type Outcome = Result<String, String>;

impl Probe<'_> {
    /// Fails if the template distinguishes the type of a block neither in small conversations nor in
    /// the request's.
    ///
    /// # Errors
    /// The first such block, by path.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let (mut known, mut unknown): (Vec<(&str, &str)>, _) = (Vec::new(), None);
        walk(self.input.conversation, &mut |at, part| {
            let Part::Block(block, message) = part else { return };
            let role = role_class(message);
            let is_known = kind(block).is_some_and(|kind| kind == "text" || known.contains(&(role, kind)));
            if is_known || unknown.is_some() {
                return;
            }
            match kind(block).filter(|_| self.knows(block, role) || self.knows_here(block)) {
                Some(kind) => known.push((role, kind)),
                None => unknown = Some(unknown_block(block, at.path())),
            }
        });
        unknown.map_or(Ok(()), Err)
    }

    /// Returns true if the template distinguishes the type of the block in a small conversation, in a
    /// message of this role.
    #[must_use]
    pub(super) fn knows(&self, block: &Value, role: &str) -> bool {
        let Some(kind) = kind(block).filter(|kind| self.writes(kind)) else { return false };
        let block = shortened(block);
        let unknown = disguised(&block, kind);
        let (known, unknown) = (conversations(role, &block), conversations(role, &unknown));
        known.into_iter().zip(unknown).any(|(known, unknown)| self.differ(known, unknown, kind))
    }

    /// Returns true if the template shows the words inside a block of a call or a result.
    #[must_use]
    pub(super) fn shows_words(&self, block: &Value, role: &str) -> bool {
        let mut marked = shortened(block);
        let inside = if kind(block) == Some(TOOL_USE) { "input" } else { "content" };
        if !marked.get_mut(inside).is_some_and(put_mark) {
            return true;
        }
        conversations(role, &marked)
            .into_iter()
            .any(|messages| self.outcome(messages).is_ok_and(|prompt| prompt.contains(MARK)))
    }

    /// Returns true if the template distinguishes the type of the block in the request's conversation,
    /// or if the conversation fails without such blocks too.
    fn knows_here(&self, block: &Value) -> bool {
        let Some(kind) = kind(block).filter(|kind| self.writes(kind)) else { return false };
        let messages = &self.input.conversation.messages;
        let with = |change: fn(&mut Value, &str)| {
            let mut messages = messages.clone();
            messages.iter_mut().filter_map(|message| message.get_mut("content")).for_each(|c| change(c, kind));
            messages
        };
        let fails = |messages: Vec<Value>| self.outcome(messages).is_err();
        self.differ(messages.clone(), with(disguise), kind)
            || (fails(messages.clone()) && fails(with(leave_out)) && fails(with(leave_text)))
    }

    /// Returns true if a string of the template is this type.
    fn writes(&self, kind: &str) -> bool {
        self.input.template.is_some_and(|named| named.template.literal_text().split('\0').any(|text| text == kind))
    }

    /// Returns true if the template treats the second messages, whose blocks have the made-up type, in
    /// another way than the first ones.
    fn differ(&self, known: Vec<Value>, unknown: Vec<Value>, kind: &str) -> bool {
        let named = |text: String| text.replace(NO_TYPE, kind);
        self.outcome(known) != self.outcome(unknown).map(named).map_err(named)
    }

    fn outcome(&self, messages: Vec<Value>) -> Outcome {
        let conversation = self.input.conversation.with_messages(messages);
        let input = Input { conversation: &conversation, ..self.input };
        (self.adapter.render)(self.model, &input).map(|output| output.prompt).map_err(|error| error.to_string())
    }
}

/// Returns the role of a message, one for all that are rare.
fn role_class(message: &Value) -> &'static str {
    let role = message.get("role").and_then(Value::as_str);
    ["system", "assistant", "tool"].into_iter().find(|known| role == Some(*known)).unwrap_or("user")
}

/// Returns conversations with the block in a message of this role: as the last one, and before
/// another one.
fn conversations(role: &str, block: &Value) -> [Vec<Value>; 2] {
    let say = |role: &str| json!({"role": role, "content": "x"});
    let call = json!({"id": "abcdefghi", "type": "function", "function": {"name": "x", "arguments": {}}});
    let before = match role {
        "assistant" => vec![say("user")],
        "tool" => vec![say("user"), json!({"role": "assistant", "content": "", "tool_calls": [call]})],
        _ => Vec::new(),
    };
    let after = if role == "user" { "assistant" } else { "user" };
    let with = |blocks: Value| match role {
        "tool" => json!({"role": role, "content": blocks, "tool_call_id": "abcdefghi"}),
        _ => json!({"role": role, "content": blocks}),
    };
    let text = json!({"type": "text", "text": "x"});
    let last = [before.clone(), vec![with(json!([block]))]].concat();
    [last, [before, vec![with(json!([text, block])), say(after)]].concat()]
}

fn disguised(block: &Value, kind: &str) -> Value {
    let mut blocks = json!([block]);
    disguise(&mut blocks, kind);
    blocks[0].take()
}

/// Replaces the type of each block of this type, also as the name of a key.
fn disguise(content: &mut Value, kind: &str) {
    let blocks = content.as_array_mut().into_iter().flatten();
    let of_kind = blocks.filter(|block| self::kind(block) == Some(kind));
    for fields in of_kind.filter_map(Value::as_object_mut) {
        let renamed = |key: String| if key == kind { NO_TYPE.to_owned() } else { key };
        *fields = std::mem::take(fields).into_iter().map(|(key, value)| (renamed(key), value)).collect();
        fields["type"] = NO_TYPE.into();
    }
}

/// Replaces the texts in a value, but no type of a block. Returns true if there is one.
fn put_mark(value: &mut Value) -> bool {
    let any = |found: bool, value: &mut Value| put_mark(value) || found;
    match value {
        Value::String(text) => {
            let has_words = !text.trim().is_empty();
            *text = MARK.to_owned();
            has_words
        }
        Value::Array(items) => items.iter_mut().fold(false, any),
        Value::Object(fields) => {
            let texts = fields.iter_mut().filter(|(key, _)| *key != "type");
            texts.map(|(_, field)| field).fold(false, any)
        }
        _ => false,
    }
}

/// Removes each block of this type.
fn leave_out(content: &mut Value, kind: &str) {
    let Some(blocks) = content.as_array_mut() else { return };
    blocks.retain(|block| self::kind(block) != Some(kind));
}

/// Removes each block of this type. A list of text blocks becomes text.
fn leave_text(content: &mut Value, kind: &str) {
    leave_out(content, kind);
    if let Some(Ok(text)) = content.as_array().map(|blocks| blocks_to_text(blocks)) {
        *content = text.into();
    }
}

/// Returns the value with the first characters of each text.
fn shortened(value: &Value) -> Value {
    match value {
        Value::String(text) => text.chars().take(MAX_TEXT).collect::<String>().into(),
        Value::Array(items) => items.iter().map(shortened).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), shortened(value))).collect(),
        other => other.clone(),
    }
}
