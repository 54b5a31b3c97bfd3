//! All rewriting of a conversation's messages, in one order: typed blocks, reasoning, the form of content,
//! merges and roles, then missing content.

use serde_json::Value;

use super::forms::{self, ContentForm, Forms};
use super::normalize::{Normalized, Turns, normalize};
use super::null_content;
use super::place::Place;
use super::reasoning_key;
use super::rewrite::Rewrite;
use super::traced::Traced;
use super::typed_blocks::{self, Conversion};
use crate::conversation::Invalid;

/// The facts about a template that decide how messages are rewritten. The default rewrites nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// The typed blocks that become calls and messages of the tool. None converts none.
    pub conversion: Option<Conversion>,
    /// The form of each role's content.
    pub forms: Forms,
    /// The messages that are merged or get another role. None changes none.
    pub turns: Option<Turns>,
    /// The key of reasoning, unless it is `reasoning_content`.
    pub reasoning_key: Option<&'static str>,
    /// True if the template fails for null content with tool calls, and not for an empty text.
    pub null_content_fails: bool,
}

/// Rewritten messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewritten {
    pub messages: Vec<Value>,
    /// The place of each message in the request.
    pub places: Vec<Place>,
    /// The changes, in the order in which they were made.
    pub rewrites: Vec<Rewrite>,
}

impl Policy {
    /// Rewrites the messages of a request.
    ///
    /// # Errors
    /// A block that cannot be converted, by its path in the request.
    pub fn rewrite(&self, messages: Vec<Value>) -> Result<Rewritten, Invalid> {
        let mut messages = Traced::all(messages);
        if let Some(conversion) = self.conversion {
            messages = typed_blocks::convert(messages, conversion)?;
        }
        if let Some(key) = self.reasoning_key {
            messages.iter_mut().for_each(|message| reasoning_key::rename(message, key));
        }
        self.apply_forms(&mut messages, |form| form == ContentForm::Text)?;
        let Normalized { mut messages, rewrites } = match self.turns {
            Some(turns) => normalize(messages, turns),
            None => Normalized { messages, rewrites: Vec::new() },
        };
        // Texts are merged with a blank line before they become blocks.
        self.apply_forms(&mut messages, |form| form != ContentForm::Text)?;
        if self.null_content_fails {
            messages.iter_mut().for_each(null_content::fill);
        }
        let (messages, places) = messages.into_iter().map(|message| (message.message, message.place)).unzip();
        Ok(Rewritten { messages, places, rewrites })
    }

    /// Converts the content of messages whose form is one of these.
    fn apply_forms(&self, messages: &mut [Traced], is_applied: fn(ContentForm) -> bool) -> Result<(), Invalid> {
        for message in messages {
            let form = self.forms.of(message.role());
            if is_applied(form) {
                forms::apply(message, form)?;
            }
        }
        Ok(())
    }
}
