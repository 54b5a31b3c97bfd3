//! Python's `iter()`.

use minijinja::Value;

use super::create::tuple;
use super::dict::{View, ViewKind};
use super::items::Items;
use super::object::{PyObject, is_iterable, length, py_object, type_name};
use crate::budget;
use crate::error::{Fallible, fail};

impl Items {
    pub(crate) fn new(value: Value) -> Self {
        let size = if matches!(py_object(&value), Some(PyObject::Dict(_) | PyObject::View(_))) {
            length(&value)
        } else {
            None
        };
        Self { value, at: 0, size }
    }

    fn next_char(&mut self) -> Option<Value> {
        let next = self.value.as_str()?[self.at..].chars().next()?;
        self.at += next.len_utf8();
        Some(Value::from(next))
    }

    fn next_of(&mut self) -> Option<Fallible<Value>> {
        let at = self.at;
        self.at += 1;
        if self.size.is_some() && self.size != length(&self.value) {
            return Some(Err(fail("dictionary changed size during iteration")));
        }
        match py_object(&self.value)? {
            PyObject::Seq(seq) => seq.items().get(at).cloned().map(Ok),
            PyObject::Dict(dict) => dict.entries().get(at).map(|(key, _)| Ok(key.clone())),
            PyObject::View(view) => view.item(at),
            PyObject::Range(range) => range.get(at).map(|int| Ok(Value::from(int))),
            PyObject::Generator(generator) => generator.next(),
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

/// Returns the result of Python's `iter(value)`.
pub(crate) fn iterate(value: &Value) -> Fallible<Items> {
    if is_iterable(value) {
        Ok(Items::new(value.clone()))
    } else {
        Err(fail(format!("'{}' object is not iterable", type_name(value))))
    }
}

/// Returns the result of Python's `list(value)`, and charges it to the budget.
pub(crate) fn to_vec(value: &Value) -> Fallible<Vec<Value>> {
    let mut items = Vec::new();
    for item in iterate(value)? {
        budget::alloc_values(1)?;
        items.push(item?);
    }
    Ok(items)
}

impl View {
    /// Returns the item at a position.
    pub(crate) fn item(&self, at: usize) -> Option<Fallible<Value>> {
        let (key, value) = self.dict().entries().get(at)?;
        Some(match self.kind {
            ViewKind::Keys => Ok(key.clone()),
            ViewKind::Values => Ok(value.clone()),
            ViewKind::Items => tuple(vec![key.clone(), value.clone()]),
        })
    }
}
