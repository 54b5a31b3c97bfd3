//! Creates values, charged to the budget.

use std::cell::RefCell;

use minijinja::Value;
use num_bigint::BigInt as Digits;
use parking_lot::Mutex;

use super::bigint::BigInt;
use super::callable::{Counter, CounterKind};
use super::dict::{View, ViewKind};
use super::generator::{Generator, GeneratorKind, Rest};
use super::namespace::Namespace;
use super::object::{PyObject, nesting_above};
use super::sequence::{Seq, SeqKind};
use super::undefined::Undefined;
use crate::budget;
use crate::error::{Fallible, Limit, limit};

/// Creates a text, charged to the budget.
pub(crate) fn text(text: impl Into<String>) -> Fallible<Value> {
    let text = text.into();
    budget::alloc(text.len())?;
    let value = Value::from(text);
    budget::track(&value);
    Ok(value)
}

/// Creates a text, marked as safe (Python: `Markup`) if `like` is.
pub(crate) fn text_like(like: &Value, content: String) -> Fallible<Value> {
    if like.is_safe() { safe_text(content) } else { text(content) }
}

/// The buffer for joined texts is kept up to this size.
const MAX_SCRATCH_BYTES: usize = 64 * 1024;

// Kept between renders, so that a join allocates only its result.
thread_local! {
    static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Joins texts, charged to the budget.
pub(crate) fn joined<'a>(parts: impl Iterator<Item = &'a str> + Clone) -> Fallible<Value> {
    budget::alloc(parts.clone().map(str::len).sum())?;
    let value = SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        scratch.extend(parts);
        let value = Value::from(scratch.as_str());
        scratch.shrink_to(MAX_SCRATCH_BYTES);
        value
    });
    budget::track(&value);
    Ok(value)
}

/// Creates a part of the text in `whole`, of the same kind.
pub(crate) fn text_part(whole: &Value, part: &str) -> Fallible<Value> {
    if whole.as_str().is_some_and(|text| text.len() == part.len()) {
        return Ok(whole.clone());
    }
    if whole.is_safe() {
        return safe_text(part.to_owned());
    }
    budget::alloc(part.len())?;
    let value = Value::from(part);
    budget::track(&value);
    Ok(value)
}

/// Creates a text that is marked as safe.
pub(crate) fn safe_text(text: String) -> Fallible<Value> {
    budget::alloc(text.len())?;
    let value = Value::from_safe_string(text);
    budget::track(&value);
    Ok(value)
}

/// Creates a list, charged to the budget.
pub(crate) fn list(items: Vec<Value>) -> Fallible<Value> {
    Seq::value(SeqKind::List, items)
}

/// Creates a tuple, charged to the budget.
pub(crate) fn tuple(items: Vec<Value>) -> Fallible<Value> {
    Seq::value(SeqKind::Tuple, items)
}

/// Returns Python's `None`.
pub(crate) fn none() -> Value {
    Value::from(())
}

/// The largest integer. CPython refuses to print more than 4,300 digits; some more may be computed.
const MAX_BITS: u64 = 64 * 1024;

/// Creates an integer of any size.
pub(crate) fn int_value(int: Digits) -> Fallible<Value> {
    if let Ok(small) = i128::try_from(&int) {
        return Ok(Value::from(small));
    }
    if int.bits() > MAX_BITS {
        return Err(limit(Limit::Integer));
    }
    Ok(PyObject::BigInt(BigInt::from(int)).value())
}

/// The values that a list costs besides its items.
const OBJECT_VALUES: usize = 2;

impl Seq {
    /// Creates a sequence, charged to the budget.
    pub(crate) fn value(kind: SeqKind, items: Vec<Value>) -> Fallible<Value> {
        budget::alloc_values(items.len())?;
        Self::charged_for(kind, items)
    }

    /// Creates a sequence whose items are charged already.
    pub(crate) fn charged_for(kind: SeqKind, items: Vec<Value>) -> Fallible<Value> {
        budget::alloc_values(OBJECT_VALUES)?;
        let charged = items.len() + OBJECT_VALUES;
        let nesting = nesting_above(&items)?;
        Ok(PyObject::Seq(Self { kind, items, nesting, charged }).value())
    }

    /// Creates a sequence that belongs to the template or the input, not to the render.
    pub(crate) fn free_of_charge(kind: SeqKind, items: Vec<Value>) -> Fallible<Value> {
        let nesting = nesting_above(&items)?;
        Ok(PyObject::Seq(Self { kind, items, nesting, charged: 0 }).value())
    }
}

impl View {
    pub(crate) fn value(kind: ViewKind, dict: &Value) -> Value {
        PyObject::View(Self { kind, dict: dict.clone() }).value()
    }
}

impl Generator {
    /// Creates a generator of the items that `produce` pushes before it returns.
    pub(crate) fn value(kind: GeneratorKind, produce: impl FnOnce(&mut Vec<Value>) -> Fallible<()>) -> Fallible<Value> {
        let mut items = Vec::new();
        let error = match produce(&mut items) {
            Err(error) if error.is_fatal() => return Err(error),
            result => result.err(),
        };
        budget::alloc_values(items.len() + 2)?;
        let nesting = nesting_above(&items)?;
        let rest = Mutex::new(Rest { items: items.into_iter(), error });
        Ok(PyObject::Generator(Self { kind, nesting, rest }).value())
    }
}

impl Namespace {
    /// Creates a namespace that lives until [`Namespaces`](super::namespace::Namespaces) is
    /// dropped.
    pub(crate) fn value(attributes: Vec<(Value, Value)>) -> Fallible<Value> {
        Ok(PyObject::Namespace(Self::new(attributes)?).value())
    }
}

impl Counter {
    pub(crate) fn value(kind: CounterKind, values: Vec<Value>) -> Fallible<Value> {
        budget::alloc_values(values.len() + 2)?;
        let nesting = nesting_above(&values)?;
        Ok(PyObject::Counter(Self { kind, values, nesting, at: Mutex::new(0) }).value())
    }
}

impl Undefined {
    pub(crate) fn value(self) -> Value {
        PyObject::Undefined(self).value()
    }

    pub(crate) fn because(reason: impl Into<String>) -> Value {
        Self::Because(reason.into()).value()
    }
}
