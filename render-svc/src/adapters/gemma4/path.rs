//! Paths of messages and blocks in a request, for errors.

use std::fmt;

use crate::conversation::Invalid;

/// The path of a message or of a block in it. It is formatted only for an error or an attachment.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'p> {
    Message(usize),
    /// An item of a list.
    Item(&'p Path<'p>, &'static str, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(i) => write!(f, "messages[{i}]"),
            Self::Item(parent, key, i) => write!(f, "{parent}.{key}[{i}]"),
        }
    }
}

impl Path<'_> {
    /// Returns an error about a field at this path.
    pub(super) fn invalid(&self, field: &str, problem: &str) -> Invalid {
        Invalid::new(format!("{self}.{field}"), problem)
    }
}
