//! One-shot iterators: what `map`, `select`, `reversed` and the like give.
//!
//! Their items are computed at once, up to the first error; the error is kept and raised when iteration reaches it,
//! so a generator that nobody consumes raises nothing, as in Python.

use std::sync::{Mutex, PoisonError};

use minijinja::{Error, Value};

use super::super::budget;
use super::super::error::{Fallible, is_fatal};
use super::{Obj, nesting_above};

/// An iterator that can be consumed once.
#[derive(Debug)]
pub(crate) struct Generator {
    type_name: &'static str,
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
    pub(crate) fn value(
        type_name: &'static str,
        produce: impl FnOnce(&mut Vec<Value>) -> Fallible<()>,
    ) -> Fallible<Value> {
        let mut items = Vec::new();
        let error = match produce(&mut items) {
            Err(error) if is_fatal(&error) => return Err(error),
            result => result.err(),
        };
        budget::alloc_values(items.len() + 2)?;
        let nesting = nesting_above(&items)?;
        let rest = Mutex::new(Rest { items: items.into_iter(), error });
        Ok(Obj::Generator(Self { type_name, nesting, rest }).value())
    }

    pub(crate) fn next(&self) -> Option<Fallible<Value>> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        match rest.items.next() {
            Some(item) => Some(Ok(item)),
            None => rest.error.take().map(Err),
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        self.type_name
    }

    pub(super) fn nesting(&self) -> u16 {
        self.nesting
    }
}
