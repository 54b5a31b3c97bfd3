//! Equality, hashes and the lookup of dict keys, which Python defines in terms of each other.

use std::hash::{BuildHasher, Hash, Hasher};

use minijinja::Value;

use super::bigint::exact_int;
use super::dict::{Dict, HASHING, View, ViewKind, hash_str};
use super::object::{PyObject, PyValue, as_digits, py_object, py_value, type_name};
use super::range::Range;
use super::sequence::{Seq, SeqKind};
use crate::budget;
use crate::error::{Fallible, fail};
use crate::taint;

/// Returns the result of Python's `left == right`.
pub(crate) fn equal(left: &Value, right: &Value) -> Fallible<bool> {
    match (py_value(left), py_value(right)) {
        (PyValue::Str(left), PyValue::Str(right)) => {
            budget::scan(if left.len() == right.len() { left.len() } else { 0 })?;
            Ok(taint::same(left, right))
        }
        (PyValue::Undefined(_), PyValue::Undefined(_)) | (PyValue::None, PyValue::None) => Ok(true),
        (PyValue::Float(left), PyValue::Float(right)) => Ok(left == right),
        (PyValue::Int(left), PyValue::Int(right)) => Ok(left == right),
        (PyValue::Bool(left), PyValue::Bool(right)) => Ok(left == right),
        (PyValue::Object(left_object), PyValue::Object(right_object)) => {
            equal_objects(left, left_object, right, right_object)
        }
        _ => equal_numbers(left, right),
    }
}

/// The cost, in steps of the budget, to convert two numbers to large integers.
pub(crate) const AS_DIGITS_STEPS: usize = 8;

/// Returns true if two values are the same number, of any types.
fn equal_numbers(left: &Value, right: &Value) -> Fallible<bool> {
    budget::steps(AS_DIGITS_STEPS)?;
    Ok(match (as_digits(left), as_digits(right), py_value(left), py_value(right)) {
        (Some(left), Some(right), ..) => left == right,
        (Some(int), None, _, PyValue::Float(float)) | (None, Some(int), PyValue::Float(float), _) => {
            exact_int(float).is_some_and(|whole| whole == int)
        }
        _ => false,
    })
}

fn equal_objects(left: &Value, left_object: &PyObject, right: &Value, right_object: &PyObject) -> Fallible<bool> {
    budget::steps(2)?;
    match (left_object, right_object) {
        _ if std::ptr::eq(left_object, right_object) => Ok(true),
        (PyObject::Seq(left), PyObject::Seq(right)) => equal_sequences(left, right),
        (PyObject::Dict(left), PyObject::Dict(right)) => equal_dicts(left, right),
        (PyObject::Range(left), PyObject::Range(right)) => Ok(equal_ranges(left, right)),
        (PyObject::View(left), PyObject::View(right)) => equal_views(left, right),
        (PyObject::Builtin(left), PyObject::Builtin(right)) => Ok(left == right),
        (PyObject::Namespace(left), PyObject::Namespace(right)) => Ok(std::sync::Arc::ptr_eq(left, right)),
        (PyObject::Method(left), PyObject::Method(right)) => {
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

/// Returns true if all items are equal.
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

/// Views of keys and items are sets. A view of values equals only itself.
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

/// Returns the result of Python's `left is right`.
pub(crate) fn is_same(left: &Value, right: &Value) -> bool {
    match (py_object(left), py_object(right), py_value(left), py_value(right)) {
        (Some(left), Some(right), ..) => std::ptr::eq(left, right) || (is_empty_tuple(left) && is_empty_tuple(right)),
        (_, _, PyValue::None, PyValue::None) | (_, _, PyValue::Undefined(_), PyValue::Undefined(_)) => true,
        (_, _, PyValue::Bool(left), PyValue::Bool(right)) => left == right,
        // CPython keeps one object per small integer and per short text of the template.
        (_, _, PyValue::Int(left), PyValue::Int(right)) => left == right,
        (_, _, PyValue::Str(left), PyValue::Str(right)) => taint::same(left, right),
        (_, _, PyValue::Float(left), PyValue::Float(right)) => left.to_bits() == right.to_bits(),
        _ => false,
    }
}

pub(crate) fn is_empty_tuple(object: &PyObject) -> bool {
    matches!(object, PyObject::Seq(seq) if !seq.is_list() && seq.items().is_empty())
}

/// Returns Python's `hash`. Equal values have equal hashes. Fails for lists and dicts, which have
/// none.
pub(crate) fn hash(value: &Value) -> Fallible<u64> {
    budget::steps(1)?;
    match py_value(value) {
        PyValue::Str(text) => {
            budget::scan(text.len())?;
            Ok(hash_str(text))
        }
        PyValue::None => Ok(HASHING.hash_one(0xFF_u8)),
        PyValue::Bool(flag) => Ok(HASHING.hash_one(i128::from(flag))),
        PyValue::Int(int) => Ok(HASHING.hash_one(int)),
        PyValue::Float(float) => Ok(hash_float(float)),
        PyValue::Undefined(_) => Ok(HASHING.hash_one(0xFE_u8)),
        PyValue::Object(object) => hash_object(value, object),
    }
}

fn hash_float(float: f64) -> u64 {
    if float.trunc() == float && float.abs() < 1e38 {
        HASHING.hash_one(float as i128)
    } else {
        HASHING.hash_one(float.to_bits())
    }
}

fn hash_object(value: &Value, object: &PyObject) -> Fallible<u64> {
    match object {
        PyObject::Seq(seq) if seq.kind() != SeqKind::List => hash_items(seq.items()),
        PyObject::Seq(_) | PyObject::Dict(_) | PyObject::View(_) => {
            Err(fail(format!("unhashable type: '{}'", type_name(value))))
        }
        PyObject::BigInt(big) => Ok(HASHING.hash_one(big.to_f64().to_bits())),
        PyObject::Range(range) => hash_items(&[range.start(), range.stop(), range.step()].map(Value::from)),
        other => Ok(HASHING.hash_one(std::ptr::from_ref(other).addr())),
    }
}

fn hash_items(items: &[Value]) -> Fallible<u64> {
    budget::steps(items.len() + 1)?;
    let mut hasher = HASHING.build_hasher();
    for item in items {
        hash(item)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

impl Dict {
    /// Looks up a key of any type. Fails if the key is not hashable.
    pub(crate) fn get(&self, key: &Value) -> Fallible<Option<&Value>> {
        if let Some(text) = key.as_str() {
            budget::scan(text.len())?;
            return Ok(self.get_str(text));
        }
        budget::steps(3)?;
        let hash = hash(key)?;
        let entries = self.now();
        let Some(candidates) = entries.candidates(hash) else {
            return find(&entries.list, key);
        };
        for &(_, at) in candidates {
            let (found, value) = &entries.list[at as usize];
            if equal(found, key)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

fn find<'a>(entries: &'a [(Value, Value)], key: &Value) -> Fallible<Option<&'a Value>> {
    for (found, value) in entries {
        if equal(found, key)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}
