//! Rewrites messages so that they fit the capabilities of a template.

use serde_json::Value;

use super::forms::text_block;
use super::merge::merge;
use super::place::Place;
use super::rewrite::{Change, Rewrite};
use super::traced::Traced;
use crate::capabilities::Capabilities;
use crate::conversation::{Content, content};

/// Messages that a template supports.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalized {
    pub messages: Vec<Traced>,
    /// The changes, in the order in which they were made.
    pub rewrites: Vec<Rewrite>,
}

/// The turns that a template needs. The default needs no change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turns {
    /// A first system message becomes a message of the user.
    pub system_to_user: bool,
    /// Later system messages become messages of the user.
    pub later_system_to_user: bool,
    /// Consecutive messages of users before the first answer are merged.
    pub merges_users: bool,
    /// Consecutive messages of users after an answer are merged.
    pub merges_later_users: bool,
    /// Consecutive messages of the assistant are merged.
    pub merges_assistants: bool,
}

impl From<Capabilities> for Turns {
    fn from(capabilities: Capabilities) -> Self {
        Self {
            system_to_user: capabilities.lacks_system_role(),
            later_system_to_user: capabilities.lacks_system_role(),
            merges_users: capabilities.requires_strict_turns,
            merges_later_users: capabilities.requires_strict_turns,
            merges_assistants: capabilities.requires_strict_turns,
        }
    }
}

/// Merges consecutive system messages. Then changes roles and merges messages as `turns` needs.
#[must_use]
pub fn normalize(messages: Vec<Traced>, turns: impl Into<Turns>) -> Normalized {
    let turns = turns.into();
    let mut rewrites = Vec::new();
    let mut messages = merge(messages, |role, _| role == "system", &mut rewrites);
    rewrites.iter_mut().for_each(|rewrite| rewrite.change = Change::SystemMerged);
    for (at, message) in messages.iter_mut().enumerate().filter(|(_, message)| message.role() == Some("system")) {
        let is_rewritten = if at == 0 { turns.system_to_user } else { turns.later_system_to_user };
        if is_rewritten {
            system_to_user(message);
            rewrites.push(Rewrite { change: Change::SystemToUser, messages: message.sources.clone() });
        }
    }
    let is_merged = |role: &str, is_later: bool| match role {
        "user" if is_later => turns.merges_later_users,
        "user" => turns.merges_users,
        "assistant" => turns.merges_assistants,
        _ => false,
    };
    let messages = merge(messages, is_merged, &mut rewrites);
    Normalized { messages, rewrites }
}

/// Converts a system message to a user message whose content begins with `[System]: `, unless it is
/// empty.
pub fn system_to_user(message: &mut Traced) {
    message.message["role"] = "user".into();
    match content(&message.message) {
        Content::Text("") => {}
        Content::Blocks(blocks) if blocks.iter().all(|block| block.get("text").is_some_and(|text| text == "")) => {}
        Content::Text(text) => {
            message.message["content"] = marked(text).into();
            let place = message.place.take("content");
            message.place.set("content", place.after(marked("").len()));
        }
        Content::Blocks(blocks) => {
            let blocks = blocks.to_vec();
            mark_blocks(message, blocks);
        }
        Content::Null | Content::Other(_) => {}
    }
}

fn marked(text: &str) -> String {
    format!("[System]: {text}")
}

/// Adds the mark to the first block if it is a text block, else as a text block before it.
fn mark_blocks(message: &mut Traced, mut blocks: Vec<Value>) {
    match blocks.first_mut().and_then(|block| block.get_mut("text")) {
        Some(Value::String(text)) => *text = marked(text),
        _ => {
            let place = message.place.take("content");
            let mut places = vec![Place::made_from(place.path().clone())];
            places.extend(place.clone().into_items(blocks.len()));
            message.place.set("content", place.with_items(places));
            blocks.insert(0, text_block(&marked("")));
        }
    }
    message.message["content"] = blocks.into();
}
