//! Lists and tuples.

use minijinja::Value;

use crate::budget;

/// The kind of a sequence in Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeqKind {
    List,
    Tuple,
    /// A tuple of `groupby`, whose two items are also named `grouper` and `list`.
    Group,
}

impl SeqKind {
    pub(super) fn type_name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Tuple => "tuple",
            Self::Group => "_GroupTuple",
        }
    }
}

/// A list or tuple.
#[derive(Debug)]
pub(crate) struct Seq {
    pub(super) kind: SeqKind,
    pub(super) items: Vec<Value>,
    pub(super) nesting: u16,
    /// The number of values that were charged.
    pub(super) charged: usize,
}

impl Seq {
    pub(crate) fn kind(&self) -> SeqKind {
        self.kind
    }

    pub(crate) fn is_list(&self) -> bool {
        self.kind == SeqKind::List
    }

    pub(crate) fn items(&self) -> &[Value] {
        &self.items
    }

    pub(super) fn nesting(&self) -> u16 {
        self.nesting
    }
}

impl Drop for Seq {
    fn drop(&mut self) {
        budget::free_values(self.charged);
    }
}
