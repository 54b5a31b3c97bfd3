//! Rewrites a conversation so that it fits the capabilities of a template. A merged message keeps
//! the content of all its messages.

use std::fmt;

use serde_json::{Value, json};

use super::origins::Source;
use crate::capabilities::Capabilities;
use crate::conversation::{Content, Conversation, Object, content};

/// A change to messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// The change.
    pub change: Change,
    /// Indices of the messages in the request, in ascending order.
    pub messages: Vec<usize>,
}

/// The change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Consecutive messages of one role became one.
    Merged,
    /// A system message became a user message.
    SystemToUser,
}

impl Rewrite {
    /// Returns the path of the first message.
    #[must_use]
    pub fn path(&self) -> String {
        format!("messages[{}]", self.messages.first().copied().unwrap_or_default())
    }

    /// Returns the numbers of the first messages, and the count of further messages.
    fn names(&self) -> String {
        let named: Vec<_> = self.messages.iter().take(MAX_NAMED_MESSAGES).map(usize::to_string).collect();
        let named = named.join(", ");
        match self.messages.len().saturating_sub(MAX_NAMED_MESSAGES) {
            0 if self.messages.len() == 1 => format!("message {named}"),
            0 => format!("messages {named}"),
            more => format!("messages {named} and {more} more"),
        }
    }
}

/// Maximum number of messages that a warning names.
const MAX_NAMED_MESSAGES: usize = 8;

/// A conversation that a template supports.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalized {
    /// The conversation.
    pub conversation: Conversation,
    /// The changes, in the order in which they were made.
    pub rewrites: Vec<Rewrite>,
    /// For each message, the request's messages from which it was made.
    pub sources: Vec<Vec<Source>>,
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names();
        match self.change {
            Change::Merged => write!(f, "{names} were merged: the model's template takes one message in their place"),
            Change::SystemToUser => {
                write!(f, "{names}: written as the user's, since the model's template takes no system message")
            }
        }
    }
}

/// Merges consecutive system messages. If the template has no system role, they become user
/// messages. If turns are strict, consecutive messages of user or assistant are merged too. If the
/// capabilities are unknown, only the first step is done.
#[must_use]
pub fn normalize(conversation: Conversation, capabilities: Capabilities) -> Normalized {
    let mut rewrites = Vec::new();
    let messages = conversation.messages.into_iter().enumerate();
    let mut messages: Vec<_> = messages.map(|(i, message)| Message::new(i, message)).collect();
    messages = merge(messages, &["system"], &mut rewrites);
    if capabilities.lacks_system_role() {
        for message in messages.iter_mut().filter(|message| message.role() == Some("system")) {
            message.become_users();
            rewrites.push(Rewrite { change: Change::SystemToUser, messages: message.indices() });
        }
    }
    if capabilities.requires_strict_turns {
        messages = merge(messages, &["user", "assistant"], &mut rewrites);
    }
    let (messages, sources) = messages.into_iter().map(|message| (message.message, message.from)).unzip();
    Normalized { conversation: Conversation { messages, ..conversation }, rewrites, sources }
}

struct Message {
    message: Value,
    /// The messages of the request that it consists of.
    from: Vec<Source>,
}

impl Message {
    fn new(index: usize, message: Value) -> Self {
        Self { message, from: vec![Source { message: index, blocks_at: 0, calls_at: 0 }] }
    }

    /// Returns the indices in the request of the messages that it consists of.
    fn indices(&self) -> Vec<usize> {
        self.from.iter().map(|source| source.message).collect()
    }

    /// Merges `next` into this message.
    fn join(&mut self, next: Self) {
        let (blocks, calls) = (block_count(&self.message), call_count(&self.message));
        let shifted = |source: Source| Source {
            blocks_at: source.blocks_at + blocks,
            calls_at: source.calls_at + calls,
            ..source
        };
        self.from.extend(next.from.into_iter().map(shifted));
        join_message(&mut self.message, next.message);
    }

    /// Converts a system message to a user message.
    fn become_users(&mut self) {
        let blocks = block_count(&self.message);
        system_to_user(&mut self.message);
        let added = block_count(&self.message) - blocks;
        self.from.iter_mut().for_each(|source| source.blocks_at += added);
    }

    fn role(&self) -> Option<&str> {
        self.message.get("role")?.as_str()
    }

    /// Returns true if `next` can be merged into this message. Content must be text or blocks, and
    /// tool calls must be a list.
    fn takes(&self, next: &Self, roles: &[&str]) -> bool {
        let has_calls =
            |message: &Value| message.get("tool_calls").is_none_or(|calls| calls.is_array() || calls.is_null());
        let is_plain =
            |message: &Self| !matches!(content(&message.message), Content::Other(_)) && has_calls(&message.message);
        self.role() == next.role()
            && self.role().is_some_and(|role| roles.contains(&role))
            && is_plain(self)
            && is_plain(next)
    }
}

/// Merges each run of messages with one of the roles into its first message.
fn merge(messages: Vec<Message>, roles: &[&str], rewrites: &mut Vec<Rewrite>) -> Vec<Message> {
    let mut merged: Vec<Message> = Vec::with_capacity(messages.len());
    let mut changed = Vec::new();
    for next in messages {
        match merged.last_mut().filter(|last| last.takes(&next, roles)) {
            Some(last) => {
                last.join(next);
                changed.push(merged.len() - 1);
            }
            None => merged.push(next),
        }
    }
    changed.dedup();
    let rewrite = |i: usize| Rewrite { change: Change::Merged, messages: merged[i].indices() };
    rewrites.extend(changed.into_iter().map(rewrite));
    merged
}

/// Returns the number of blocks of a message's content, after the conversion of a text to a block.
fn block_count(message: &Value) -> usize {
    match content(message) {
        Content::Null | Content::Text("") => 0,
        Content::Text(_) | Content::Other(_) => 1,
        Content::Blocks(blocks) => blocks.len(),
    }
}

fn call_count(message: &Value) -> usize {
    message.get("tool_calls").and_then(Value::as_array).map_or(0, Vec::len)
}

fn join_message(message: &mut Value, next: Value) {
    if let (Value::Object(message), Value::Object(next)) = (message, next) {
        next.into_iter().for_each(|(key, value)| join_key(message, key, value));
    }
}

/// Merges one key of a message. Equal values are kept once, except content and tool calls, which
/// are always joined.
fn join_key(message: &mut Object, key: String, value: Value) {
    let is_said = matches!(key.as_str(), "content" | "tool_calls");
    match message.get_mut(&key) {
        Some(earlier) if is_said || *earlier != value => join(earlier, value, key == "content"),
        Some(_) => {}
        None => drop(message.insert(key, value)),
    }
}

/// Joins two values: texts with a blank line between them, lists to one list, and all other values
/// to a list.
fn join(earlier: &mut Value, value: Value, is_content: bool) {
    match (&mut *earlier, value) {
        (_, Value::Null) => {}
        (Value::Null, value) => *earlier = value,
        (Value::String(text), Value::String(more)) => join_text(text, more),
        (Value::Array(list), Value::Array(more)) => list.extend(more),
        (Value::Array(list), value) => list.extend(item(value, is_content)),
        (_, Value::Array(more)) => {
            let first = item(earlier.take(), is_content);
            *earlier = first.into_iter().chain(more).collect();
        }
        (_, value) => *earlier = Value::Array(vec![earlier.take(), value]),
    }
}

fn join_text(text: &mut String, more: String) {
    if text.is_empty() || more.is_empty() {
        text.push_str(&more);
    } else {
        text.extend(["\n\n", &more]);
    }
}

/// Returns a value as an item of a list. In a list of blocks, a text becomes a block, and an empty
/// text is dropped.
fn item(value: Value, is_content: bool) -> Option<Value> {
    match value {
        Value::String(text) if is_content => (!text.is_empty()).then(|| text_block(&text)),
        value => Some(value),
    }
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn system_to_user(message: &mut Value) {
    message["role"] = "user".into();
    match content(message) {
        Content::Text(text) => message["content"] = marked(text).into(),
        Content::Blocks(blocks) => message["content"] = marked_blocks(blocks.to_vec()),
        Content::Null | Content::Other(_) => {}
    }
}

fn marked(text: &str) -> String {
    format!("[System]: {text}")
}

/// Adds the mark `[System]: ` to the first block if it is a text block, else as a text block before
/// it.
fn marked_blocks(mut blocks: Vec<Value>) -> Value {
    match blocks.first_mut().and_then(|block| block.get_mut("text")) {
        Some(Value::String(text)) => *text = marked(text),
        _ => blocks.insert(0, text_block(&marked(""))),
    }
    blocks.into()
}
