//! Lists and tuples.

use minijinja::Value;

use super::super::budget;
use super::super::error::Fallible;
use super::{Obj, nesting_above};

/// Which of Python's sequences it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeqKind {
    List,
    Tuple,
    /// A tuple of `groupby`, whose two items are also called `grouper` and `list`.
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

/// What a list costs besides its items.
const OBJECT_VALUES: usize = 2;

/// A list or tuple.
#[derive(Debug)]
pub(crate) struct Seq {
    kind: SeqKind,
    items: Vec<Value>,
    nesting: u16,
    /// How many values the budget was charged for.
    charged: usize,
}

impl Seq {
    /// A new sequence, charged to the budget.
    pub(crate) fn value(kind: SeqKind, items: Vec<Value>) -> Fallible<Value> {
        budget::alloc_values(items.len())?;
        Self::charged_for(kind, items)
    }

    /// A new sequence for whose items the budget has been charged already.
    pub(crate) fn charged_for(kind: SeqKind, items: Vec<Value>) -> Fallible<Value> {
        budget::alloc_values(OBJECT_VALUES)?;
        let charged = items.len() + OBJECT_VALUES;
        let nesting = nesting_above(&items)?;
        Ok(Obj::Seq(Self { kind, items, nesting, charged }).value())
    }

    /// A new sequence that belongs to the template or the input, not to the render.
    pub(crate) fn free_of_charge(kind: SeqKind, items: Vec<Value>) -> Fallible<Value> {
        let nesting = nesting_above(&items)?;
        Ok(Obj::Seq(Self { kind, items, nesting, charged: 0 }).value())
    }

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
