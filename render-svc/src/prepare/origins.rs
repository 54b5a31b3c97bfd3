//! The places in the request of a rewritten conversation's parts, so that errors and warnings name
//! the request's fields.

use super::place::Place;
use crate::adapter::Attachment;
use crate::conversation::Invalid;
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
    pub fn path(&self, path: &str) -> String {
        let lists = [("messages", &self.messages), ("tools", &self.tools)];
        let mut found = lists.into_iter().filter_map(|(name, places)| {
            let (i, rest) = item(path, name)?;
            Some(places.get(i)?.path_of(rest))
        });
        found.next().unwrap_or_else(|| path.to_owned())
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
        let is_each = |rest: &str| match warning.code {
            WarningCode::MessageIgnored => !rest.starts_with(".content"),
            WarningCode::ReasoningIgnored => !rest.is_empty(),
            _ => false,
        };
        let of_message = item(&warning.path, "messages").and_then(|(i, rest)| Some((self.messages.get(i)?, rest)));
        let mut paths: Vec<_> = match of_message {
            Some((place, rest)) if !warning.cuts.is_empty() => {
                warning.cuts.iter().map(|byte| place.path_of_byte(rest, *byte)).collect()
            }
            Some((place, rest)) if is_each(rest) => {
                let merged = place.merged_into(rest).into_iter().map(str::to_owned);
                [place.path_of(rest)].into_iter().chain(merged).collect()
            }
            _ => vec![self.path(&warning.path)],
        };
        paths.dedup();
        paths.into_iter().map(|path| Warning::new(warning.code, path, warning.text.clone())).collect()
    }
}

/// Splits `list[i].rest` into `i` and `.rest`.
fn item<'a>(path: &'a str, list: &str) -> Option<(usize, &'a str)> {
    let (index, rest) = path.strip_prefix(list)?.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}
