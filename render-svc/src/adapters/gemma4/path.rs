//! Where in a request something stands, for error messages.

use std::fmt;

use crate::conversation::Invalid;

/// The path of a message or of a block in it, written out only when it is needed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'p> {
    Message(usize),
    /// An item of a list that belongs to something.
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
    /// Blames a field of what stands here.
    pub(super) fn invalid(&self, field: &str, problem: &str) -> Invalid {
        Invalid::new(format!("{self}.{field}"), problem)
    }
}
