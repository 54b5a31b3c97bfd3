//! What Python's `iter()` and `len()` do.

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::{Obj, Py, byte_of, obj, py, type_name};

/// `range(start, stop, step)`.
#[derive(Debug)]
pub(crate) struct Range {
    start: i128,
    stop: i128,
    step: i128,
}

impl Range {
    /// A range; `step` must not be 0.
    pub(crate) fn new(start: i128, stop: i128, step: i128) -> Self {
        Self { start, stop, step }
    }

    pub(crate) fn start(&self) -> i128 {
        self.start
    }

    pub(crate) fn stop(&self) -> i128 {
        self.stop
    }

    pub(crate) fn step(&self) -> i128 {
        self.step
    }

    pub(crate) fn len(&self) -> usize {
        let span =
            if self.step > 0 { self.stop.saturating_sub(self.start) } else { self.start.saturating_sub(self.stop) };
        let step = self.step.unsigned_abs();
        match u128::try_from(span) {
            Ok(span) => usize::try_from(span.div_ceil(step)).unwrap_or(usize::MAX),
            Err(_) => 0,
        }
    }

    /// The part between two positions, of which only every `step`th; nothing if its numbers were too large.
    pub(crate) fn slice(&self, start: i128, stop: i128, step: i128) -> Option<Self> {
        const MAX: i128 = 1 << 96;
        let end = |at: i128| self.step.checked_mul(at)?.checked_add(self.start);
        let slice = Self { start: end(start)?, stop: end(stop)?, step: self.step.checked_mul(step)? };
        let fits = [slice.start, slice.stop, slice.step].iter().all(|number| number.abs() < MAX);
        fits.then_some(slice)
    }

    pub(crate) fn get(&self, at: usize) -> Option<i128> {
        let item = self.start.saturating_add((at as i128).saturating_mul(self.step));
        let inside = if self.step > 0 { item < self.stop } else { item > self.stop };
        inside.then_some(item)
    }
}

/// An iterator over a value, independent of the value's lifetime.
#[derive(Debug)]
pub(crate) struct Items {
    value: Value,
    at: usize,
    /// How many items a dict or a view of one had at the start: it may not grow on the way.
    size: Option<usize>,
}

impl Items {
    pub(crate) fn new(value: Value) -> Self {
        let size = if matches!(obj(&value), Some(Obj::Dict(_) | Obj::View(_))) { length(&value) } else { None };
        Self { value, at: 0, size }
    }

    fn next_char(&mut self) -> Option<Value> {
        let next = self.value.as_str()?[self.at..].chars().next()?;
        self.at += next.len_utf8();
        Some(Value::from(next))
    }

    fn next_of(&mut self) -> Option<Fallible<Value>> {
        let at = self.at;
        if let Some(Obj::Bytes(bytes)) = obj(&self.value) {
            let letter = bytes.letters()[at..].chars().next()?;
            self.at += letter.len_utf8();
            return Some(Ok(Value::from(byte_of(letter))));
        }
        self.at += 1;
        if self.size.is_some() && self.size != length(&self.value) {
            return Some(Err(fail("dictionary changed size during iteration")));
        }
        match obj(&self.value)? {
            Obj::Seq(seq) => seq.items().get(at).cloned().map(Ok),
            Obj::Dict(dict) => dict.entries().get(at).map(|(key, _)| Ok(key.clone())),
            Obj::View(view) => view.item(at),
            Obj::Range(range) => range.get(at).map(|int| Ok(Value::from(int))),
            Obj::Generator(generator) => generator.next(),
            _ => None,
        }
    }
}

impl Iterator for Items {
    type Item = Fallible<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.value.as_str().is_some() { self.next_char().map(Ok) } else { self.next_of() }
    }
}

/// Python's `iter(value)`.
pub(crate) fn iterate(value: &Value) -> Fallible<Items> {
    if is_iterable(value) {
        Ok(Items::new(value.clone()))
    } else {
        Err(fail(format!("'{}' object is not iterable", type_name(value))))
    }
}

/// Whether `iter(value)` works.
pub(crate) fn is_iterable(value: &Value) -> bool {
    match py(value) {
        Py::Str(_) | Py::Undefined(_) => true,
        Py::Obj(object) => {
            let is_container = matches!(object, Obj::Seq(_) | Obj::Dict(_) | Obj::View(_) | Obj::Bytes(_));
            is_container || matches!(object, Obj::Range(_) | Obj::Generator(_))
        }
        _ => false,
    }
}

/// Python's `list(value)`, charged to the budget.
pub(crate) fn to_vec(value: &Value) -> Fallible<Vec<Value>> {
    let mut items = Vec::new();
    for item in iterate(value)? {
        budget::alloc_values(1)?;
        items.push(item?);
    }
    Ok(items)
}

/// Python's `len(value)`, or nothing if it has none.
pub(crate) fn length(value: &Value) -> Option<usize> {
    match py(value) {
        Py::Str(text) if text.is_ascii() => Some(text.len()),
        Py::Str(text) => Some(text.chars().count()),
        Py::Undefined(_) => Some(0),
        Py::Obj(Obj::Seq(seq)) => Some(seq.items().len()),
        Py::Obj(Obj::Dict(dict)) => Some(dict.len()),
        Py::Obj(Obj::View(view)) => Some(view.dict().len()),
        Py::Obj(Obj::Range(range)) => Some(range.len()),
        Py::Obj(Obj::Bytes(bytes)) => Some(bytes.len()),
        _ => None,
    }
}
