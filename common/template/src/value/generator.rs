//! One-shot iterators: the results of `map`, `select`, `reversed` and the like.
//!
//! Their items are computed at once, up to the first error. The error is raised when iteration
//! reaches it, so an unused generator raises nothing, as in Python.

use minijinja::Value;
use parking_lot::Mutex;

use crate::error::{Error, Fallible};

/// The kind of an iterator in Python.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GeneratorKind {
    /// A generator, named after its function.
    Function(&'static str),
    /// An iterator of this type.
    Type(&'static str),
}

/// An iterator that can be consumed once.
#[derive(Debug)]
pub(crate) struct Generator {
    pub(super) kind: GeneratorKind,
    pub(super) nesting: u16,
    pub(super) rest: Mutex<Rest>,
}

/// The remaining items, and the error behind them.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) items: std::vec::IntoIter<Value>,
    pub(super) error: Option<Error>,
}

impl Generator {
    pub(crate) fn next(&self) -> Option<Fallible<Value>> {
        let mut rest = self.rest.lock();
        match rest.items.next() {
            Some(item) => Some(Ok(item)),
            None => rest.error.take().map(Err),
        }
    }

    pub(crate) fn kind(&self) -> GeneratorKind {
        self.kind
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self.kind {
            GeneratorKind::Function(_) => "generator",
            GeneratorKind::Type(name) => name,
        }
    }

    pub(super) fn nesting(&self) -> u16 {
        self.nesting
    }
}
