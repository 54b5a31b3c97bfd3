//! The places in the request of a rewritten conversation's parts, so that errors and warnings name
//! the request's fields.

use tandem_common::field::{Path, Step, Steps};

use super::place::Place;
use crate::adapter::Attachment;
use crate::conversation::{CONTENT, Invalid};
use crate::error::Error;
use crate::warning::{Warning, WarningCode};

/// The places in the request of a rewritten conversation's parts. The default is a conversation
/// that was not rewritten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    /// The place of each message.
    pub messages: Vec<Place>,
    /// The place of each tool.
    pub tools: Vec<Place>,
}

impl Origins {
    /// Returns the request's path for a path in the rewritten conversation.
    #[must_use]
    pub fn path(&self, path: &Path) -> Path {
        let steps = path.steps();
        let found = self.place(&steps).map(|(_, place, inside)| place.path_of(inside));
        found.unwrap_or_else(|| path.clone())
    }

    /// Returns the list and the place of the message or tool in which a value is, and the steps to it from there.
    fn place<'s>(&self, steps: &'s Steps<'s>) -> Option<(&'s str, &Place, &'s Steps<'s>)> {
        let [Step::Key(list), Step::Index(i), inside @ ..] = steps else { return None };
        let places = match *list {
            "messages" => &self.messages,
            "tools" => &self.tools,
            _ => return None,
        };
        Some((list, places.get(*i)?, inside))
    }

    /// Returns the error with the request's paths.
    #[must_use]
    pub fn error(&self, error: Error) -> Error {
        match error {
            Error::Invalid(invalid) => Error::Invalid(self.invalid(invalid)),
            Error::DanglingAttachment { field, id } => Error::DanglingAttachment { field: self.path(&field), id },
            other => other,
        }
    }

    /// Returns the same error with the request's path.
    #[must_use]
    pub fn invalid(&self, invalid: Invalid) -> Invalid {
        Invalid { field: self.path(&invalid.field), ..invalid }
    }

    /// Returns the attachment with the request's path.
    #[must_use]
    pub fn attachment(&self, attachment: Attachment) -> Attachment {
        Attachment { path: self.path(&attachment.path), ..attachment }
    }

    /// Returns the warning with the request's path. A message, a key or reasoning that is not in the
    /// prompt and consists of several of the request has one for each, and so has a text of which several
    /// are cut.
    #[must_use]
    pub fn warnings(&self, warning: Warning) -> Vec<Warning> {
        let is_each = |inside: &Steps<'_>| match warning.code {
            WarningCode::MessageIgnored => !matches!(inside, [Step::Key(CONTENT), ..]),
            WarningCode::ReasoningIgnored => !inside.is_empty(),
            _ => false,
        };
        let steps = warning.path.steps();
        let mut paths: Vec<_> = match self.place(&steps) {
            Some(("messages", place, inside)) if !warning.cuts.is_empty() => {
                warning.cuts.iter().map(|byte| place.path_of_byte(inside, *byte)).collect()
            }
            Some(("messages", place, inside)) if is_each(inside) => {
                let merged = place.merged_into(inside).into_iter().cloned();
                [place.path_of(inside)].into_iter().chain(merged).collect()
            }
            _ => vec![self.path(&warning.path)],
        };
        paths.dedup();
        paths.into_iter().map(|path| Warning::new(warning.code, path, warning.text.clone())).collect()
    }
}
