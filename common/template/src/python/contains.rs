//! Python's `in`, and the values for which CPython keeps one object.

use minijinja::Value;

use crate::error::{Fallible, fail};
use crate::value::Seq;
use crate::value::{PyObject, PyValue, View, ViewKind, equal, is_empty_tuple, iterate, py_value, seq, type_name};
use crate::{budget, taint};

/// Returns true if CPython keeps one object for all values that equal this value.
pub(crate) fn is_kept_once(value: &Value) -> bool {
    match py_value(value) {
        PyValue::None | PyValue::Bool(_) | PyValue::Undefined(_) => true,
        PyValue::Int(int) => (-5..=256).contains(&int),
        PyValue::Str(text) => text.chars().all(|c| u32::from(c) < 256) && text.chars().count() < 2 && !value.is_safe(),
        PyValue::Float(_) => false,
        PyValue::Object(object) => matches!(object, PyObject::Builtin(_)) || is_empty_tuple(object),
    }
}

/// Returns the result of Python's `item in container`.
pub(crate) fn contains(container: &Value, item: &Value) -> Fallible<bool> {
    match py_value(container) {
        PyValue::Str(text) => match py_value(item) {
            PyValue::Str(part) => {
                budget::scan(text.len())?;
                Ok(taint::strip(text).contains(&*taint::strip(part)))
            }
            PyValue::Undefined(undefined) => Err(undefined.error()),
            _ => Err(fail(format!("'in <string>' requires string as left operand, not {}", type_name(item)))),
        },
        PyValue::Undefined(_) => Ok(false),
        PyValue::Object(PyObject::Dict(dict)) => Ok(dict.get(item)?.is_some()),
        PyValue::Object(PyObject::View(view)) if view.kind() != ViewKind::Values => view_contains(view, item),
        PyValue::Object(PyObject::Namespace(_)) | PyValue::Object(PyObject::Loop(_)) => not_a_container(container),
        PyValue::Object(_) => contains_item(container, item),
        _ => not_a_container(container),
    }
}

/// Returns the result of `item in view` for views that are sets.
pub(crate) fn view_contains(view: &View, item: &Value) -> Fallible<bool> {
    if view.kind() == ViewKind::Keys {
        return Ok(view.dict().get(item)?.is_some());
    }
    match seq(item).filter(|pair| !pair.is_list()).map(Seq::items) {
        Some([key, value]) => match view.dict().get(key)? {
            Some(found) => equal(found, value),
            None => Ok(false),
        },
        _ => Ok(false),
    }
}

fn not_a_container(value: &Value) -> Fallible<bool> {
    Err(fail(format!("argument of type '{}' is not iterable", type_name(value))))
}

fn contains_item(container: &Value, item: &Value) -> Fallible<bool> {
    for found in iterate(container)? {
        budget::steps(3)?;
        if equal(&found?, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}
