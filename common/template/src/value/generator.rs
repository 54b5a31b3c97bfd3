//! One-shot iterators: what `map`, `select`, `reversed` and the like give.
//!
//! Their items are computed at once, up to the first error; the error is kept and raised when iteration reaches it,
//! so a generator that nobody consumes raises nothing, as in Python.

use std::sync::{Mutex, PoisonError};

use minijinja::Value;

use super::super::budget;
use super::super::error::{Error, Fallible};
use super::{Obj, nesting_above};

/// What Python calls an iterator.
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
    kind: GeneratorKind,
    nesting: u16,
    rest: Mutex<Rest>,
}

#[derive(Debug)]
struct Rest {
    items: std::vec::IntoIter<Value>,
    error: Option<Error>,
}

impl Generator {
    /// A generator of the items that `produce` hands over before it returns.
    pub(crate) fn value(kind: GeneratorKind, produce: impl FnOnce(&mut Vec<Value>) -> Fallible<()>) -> Fallible<Value> {
        let mut items = Vec::new();
        let error = match produce(&mut items) {
            Err(error) if error.is_fatal() => return Err(error),
            result => result.err(),
        };
        budget::alloc_values(items.len() + 2)?;
        let nesting = nesting_above(&items)?;
        let rest = Mutex::new(Rest { items: items.into_iter(), error });
        Ok(Obj::Generator(Self { kind, nesting, rest }).value())
    }

    pub(crate) fn next(&self) -> Option<Fallible<Value>> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
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
