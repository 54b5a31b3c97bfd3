//! A message on its way through the rewriting, with the places of its parts in the request.

use serde_json::Value;
use tandem_common::field::Path;

use super::place::Place;
use crate::conversation::Invalid;

/// A message and the places in the request from which its parts come.
#[derive(Debug, Clone, PartialEq)]
pub struct Traced {
    pub message: Value,
    /// The place of the message, its blocks, its calls and its other keys.
    pub place: Place,
    /// The indices of the request's messages that it consists of.
    pub sources: Vec<usize>,
}

impl Traced {
    /// Returns the message at `index` of the request.
    #[must_use]
    pub fn new(index: usize, message: Value) -> Self {
        Self { message, place: Place::at(Path::item("messages", index)), sources: vec![index] }
    }

    /// Returns each message of the request.
    #[must_use]
    pub fn all(messages: Vec<Value>) -> Vec<Self> {
        messages.into_iter().enumerate().map(|(i, message)| Self::new(i, message)).collect()
    }

    /// Returns the message's role if it is a text.
    #[must_use]
    pub fn role(&self) -> Option<&str> {
        self.message.get("role")?.as_str()
    }

    /// Returns an error about a part of the message with the request's path.
    #[must_use]
    pub fn invalid(&self, invalid: Invalid) -> Invalid {
        Invalid { field: self.place.path_of(&invalid.field.steps()), ..invalid }
    }
}
