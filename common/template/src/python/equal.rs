//! `==`, `in` and identity.

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::super::marks;
use super::super::value::{
    Bytes, Dict, Obj, Py, Range, Seq, View, ViewKind, as_digits, iterate, obj, py, seq, type_name,
};
use super::bytes::byte_arg;

/// Python's `left == right`.
pub(crate) fn equal(left: &Value, right: &Value) -> Fallible<bool> {
    match (py(left), py(right)) {
        (Py::Str(left), Py::Str(right)) => {
            budget::scan(if left.len() == right.len() { left.len() } else { 0 })?;
            Ok(marks::same(left, right))
        }
        (Py::Undefined(_), Py::Undefined(_)) | (Py::None, Py::None) => Ok(true),
        (Py::Float(left), Py::Float(right)) => Ok(left == right),
        (Py::Int(left), Py::Int(right)) => Ok(left == right),
        (Py::Bool(left), Py::Bool(right)) => Ok(left == right),
        (Py::Obj(left_object), Py::Obj(right_object)) => equal_objects(left, left_object, right, right_object),
        _ => equal_numbers(left, right),
    }
}

/// What it costs to make large integers of two numbers.
pub(super) const AS_DIGITS_STEPS: usize = 8;

/// Whether two values are the same number, whatever their types.
fn equal_numbers(left: &Value, right: &Value) -> Fallible<bool> {
    budget::steps(AS_DIGITS_STEPS)?;
    Ok(match (as_digits(left), as_digits(right), py(left), py(right)) {
        (Some(left), Some(right), ..) => left == right,
        (Some(int), None, _, Py::Float(float)) | (None, Some(int), Py::Float(float), _) => {
            super::number::exact_int(float).is_some_and(|whole| whole == int)
        }
        _ => false,
    })
}

fn equal_objects(left: &Value, left_object: &Obj, right: &Value, right_object: &Obj) -> Fallible<bool> {
    budget::steps(2)?;
    match (left_object, right_object) {
        _ if std::ptr::eq(left_object, right_object) => Ok(true),
        (Obj::Seq(left), Obj::Seq(right)) => equal_sequences(left, right),
        (Obj::Dict(left), Obj::Dict(right)) => equal_dicts(left, right),
        (Obj::Bytes(left), Obj::Bytes(right)) => {
            budget::scan(left.letters().len().min(right.letters().len()))?;
            Ok(marks::same(left.letters(), right.letters()))
        }
        (Obj::Range(left), Obj::Range(right)) => Ok(equal_ranges(left, right)),
        (Obj::View(left), Obj::View(right)) => equal_views(left, right),
        (Obj::Builtin(left), Obj::Builtin(right)) => Ok(left == right),
        (Obj::Namespace(left), Obj::Namespace(right)) => Ok(std::sync::Arc::ptr_eq(left, right)),
        (Obj::Method(left), Obj::Method(right)) => {
            Ok(left.name == right.name && is_same(&left.receiver, &right.receiver))
        }
        _ => equal_numbers(left, right),
    }
}

fn equal_sequences(left: &Seq, right: &Seq) -> Fallible<bool> {
    if left.is_list() != right.is_list() {
        return Ok(false);
    }
    equal_items(left.items(), right.items())
}

/// Whether the items are equal, one by one. The same object is equal to itself, even NaN.
pub(crate) fn equal_items(left: &[Value], right: &[Value]) -> Fallible<bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (left, right) in left.iter().zip(right) {
        budget::steps(2)?;
        if !equal(left, right)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_dicts(left: &Dict, right: &Dict) -> Fallible<bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (key, value) in left.entries() {
        budget::steps(2)?;
        match right.get(key)? {
            Some(other) if equal(value, other)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn equal_ranges(left: &Range, right: &Range) -> bool {
    let len = left.len();
    len == right.len() && (len == 0 || left.get(0) == right.get(0)) && (len < 2 || left.step() == right.step())
}

/// Views of keys and items are sets; views of values are only ever equal to themselves.
fn equal_views(left: &View, right: &View) -> Fallible<bool> {
    if left.kind() != right.kind() || left.dict().len() != right.dict().len() {
        return Ok(false);
    }
    match left.kind() {
        ViewKind::Keys => {
            for (key, _) in left.dict().entries() {
                budget::steps(1)?;
                if right.dict().get(key)?.is_none() {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ViewKind::Items => equal_dicts(left.dict(), right.dict()),
        ViewKind::Values => Ok(false),
    }
}

/// Python's `left is right`.
pub(crate) fn is_same(left: &Value, right: &Value) -> bool {
    match (obj(left), obj(right), py(left), py(right)) {
        (Some(Obj::Bytes(left)), Some(Obj::Bytes(right)), ..) => {
            // CPython keeps one object per byte.
            std::ptr::eq(left, right) || (left.len() < 2 && marks::same(left.letters(), right.letters()))
        }
        (Some(left), Some(right), ..) => std::ptr::eq(left, right) || (is_empty_tuple(left) && is_empty_tuple(right)),
        (_, _, Py::None, Py::None) | (_, _, Py::Undefined(_), Py::Undefined(_)) => true,
        (_, _, Py::Bool(left), Py::Bool(right)) => left == right,
        // CPython keeps one object per small integer and per short text of the template.
        (_, _, Py::Int(left), Py::Int(right)) => left == right,
        (_, _, Py::Str(left), Py::Str(right)) => marks::same(left, right),
        (_, _, Py::Float(left), Py::Float(right)) => left.to_bits() == right.to_bits(),
        _ => false,
    }
}

/// Whether CPython keeps one object for all values that are equal to this one.
pub(crate) fn is_kept_once(value: &Value) -> bool {
    match py(value) {
        Py::None | Py::Bool(_) | Py::Undefined(_) => true,
        Py::Int(int) => (-5..=256).contains(&int),
        Py::Str(text) => text.chars().all(|c| u32::from(c) < 256) && text.chars().count() < 2 && !value.is_safe(),
        Py::Float(_) => false,
        Py::Obj(object) => matches!(object, Obj::Builtin(_)) || is_empty_tuple(object),
    }
}

fn is_empty_tuple(object: &Obj) -> bool {
    matches!(object, Obj::Seq(seq) if !seq.is_list() && seq.items().is_empty())
}

/// Python's `item in container`.
pub(crate) fn contains(container: &Value, item: &Value) -> Fallible<bool> {
    match py(container) {
        Py::Str(text) => match py(item) {
            Py::Str(part) => {
                budget::scan(text.len())?;
                Ok(marks::plain(text).contains(&*marks::plain(part)))
            }
            Py::Undefined(undefined) => Err(undefined.error()),
            _ => Err(fail(format!("'in <string>' requires string as left operand, not {}", type_name(item)))),
        },
        Py::Undefined(_) => Ok(false),
        Py::Obj(Obj::Dict(dict)) => Ok(dict.get(item)?.is_some()),
        Py::Obj(Obj::View(view)) if view.kind() != ViewKind::Values => view_contains(view, item),
        Py::Obj(Obj::Bytes(bytes)) => bytes_contain(bytes, item),
        Py::Obj(Obj::Namespace(_)) | Py::Obj(Obj::Loop(_)) => not_a_container(container),
        Py::Obj(_) => contains_item(container, item),
        _ => not_a_container(container),
    }
}

fn bytes_contain(bytes: &Bytes, item: &Value) -> Fallible<bool> {
    budget::walk(bytes.letters().len())?;
    let letters = marks::plain(bytes.letters());
    match py(item) {
        Py::Obj(Obj::Bytes(part)) => Ok(letters.contains(&*marks::plain(part.letters()))),
        _ => Ok(letters.contains(byte_arg(item)?)),
    }
}

/// `item in view`, for views that are sets.
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
