//! One walk over the parts of a conversation. It allocates nothing: a check builds the path of a part
//! where it finds a fault.

use serde_json::Value;
use tandem_common::field::{Path, Step, Steps};

use crate::conversation::{CONTENT, Conversation, Invalid, blocks};

/// The place of a part: an item of a list, in the request or in another part.
#[derive(Debug, Clone, Copy)]
pub struct At<'o> {
    outer: Option<&'o At<'o>>,
    list: &'static str,
    index: usize,
}

impl<'o> At<'o> {
    /// Returns the place of an item of a list of the request, such as `messages`.
    #[must_use]
    pub fn new(list: &'static str, index: usize) -> Self {
        Self { outer: None, list, index }
    }

    /// Returns the place of an item of a list in this part.
    #[must_use]
    pub fn item(&'o self, list: &'static str, index: usize) -> Self {
        Self { outer: Some(self), list, index }
    }

    /// Returns the steps to a value to which steps lead from this part.
    #[must_use]
    pub fn steps_to<'s>(&self, within: &Steps<'s>) -> Vec<Step<&'s str>> {
        let mut steps = self.outer.map(|outer| outer.steps_to(&[])).unwrap_or_default();
        steps.extend(self.list.split('.').map(Step::Key));
        steps.push(Step::Index(self.index));
        steps.extend_from_slice(within);
        steps
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> Path {
        Path::from(&*self.steps_to(&[]))
    }

    /// Returns an error about a field of the part.
    pub fn invalid(&self, field: &str, problem: impl Into<String>) -> Invalid {
        Invalid::new(field, problem).within(self.path())
    }
}

/// A part of a conversation.
#[derive(Debug, Clone, Copy)]
pub enum Part<'c> {
    Message(&'c Value),
    /// A block of a message, and the message.
    Block(&'c Value, &'c Value),
    /// A block in another one, such as in a tool result.
    InnerBlock(&'c Value),
    Call(&'c Value),
    Tool(&'c Value),
    Document(&'c Value),
}

impl<'c> Part<'c> {
    /// Returns a block of a message or in another block.
    #[must_use]
    pub fn block(self) -> Option<&'c Value> {
        match self {
            Self::Block(block, _) | Self::InnerBlock(block) => Some(block),
            _ => None,
        }
    }
}

/// Visits the parts of a conversation in their order: each message, its blocks and its calls, then
/// tools and documents.
pub fn walk<'c>(conversation: &'c Conversation, visit: &mut impl FnMut(&At<'_>, Part<'c>)) {
    let Conversation { messages, tools, documents, .. } = conversation;
    for (i, message) in messages.iter().enumerate() {
        let at = At::new("messages", i);
        visit(&at, Part::Message(message));
        for (j, block) in blocks(message).iter().enumerate() {
            let at = at.item(CONTENT, j);
            visit(&at, Part::Block(block, message));
            walk_inner(block, &at, visit);
        }
        items(message.get("tool_calls")).for_each(|(j, call)| visit(&at.item("tool_calls", j), Part::Call(call)));
    }
    items(tools.as_ref()).for_each(|(i, tool)| visit(&At::new("tools", i), Part::Tool(tool)));
    items(documents.as_ref()).for_each(|(i, document)| visit(&At::new("documents", i), Part::Document(document)));
}

fn walk_inner<'c>(block: &'c Value, at: &At<'_>, visit: &mut impl FnMut(&At<'_>, Part<'c>)) {
    for (i, inner) in blocks(block).iter().enumerate() {
        let at = at.item(CONTENT, i);
        visit(&at, Part::InnerBlock(inner));
        walk_inner(inner, &at, visit);
    }
}

fn items(list: Option<&Value>) -> impl Iterator<Item = (usize, &Value)> {
    list.and_then(Value::as_array).into_iter().flatten().enumerate()
}
