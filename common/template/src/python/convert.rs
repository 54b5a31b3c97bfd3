//! Arguments of Python functions as Rust values.

use minijinja::Value;

use crate::error::{Fallible, fail};
use crate::value::{PyValue, is_undefined, py_value, type_name};

/// Returns a text argument; fails for other types.
pub(crate) fn text_arg<'v>(value: &'v Value, function: &str) -> Fallible<&'v str> {
    match py_value(value) {
        PyValue::Str(text) => Ok(text),
        PyValue::Undefined(undefined) => Err(undefined.error()),
        _ => Err(fail(format!("{function}() argument must be str, not {}", type_name(value)))),
    }
}

/// Returns an integer argument; booleans are accepted.
pub(crate) fn int_arg(value: &Value) -> Fallible<i64> {
    match py_value(value) {
        PyValue::Bool(flag) => Ok(i64::from(flag)),
        PyValue::Int(int) => Ok(i64::try_from(int).unwrap_or(if int < 0 { i64::MIN } else { i64::MAX })),
        PyValue::Undefined(undefined) => Err(undefined.error()),
        _ => Err(fail(format!("'{}' object cannot be interpreted as an integer", type_name(value)))),
    }
}

/// Returns an optional argument; `None` is the same as a missing one.
pub(crate) fn or_none(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !value.is_none())
}

/// Fails if the value is undefined.
pub(crate) fn defined(value: &Value) -> Fallible<&Value> {
    match py_value(value) {
        PyValue::Undefined(undefined) => Err(undefined.error()),
        _ => {
            debug_assert!(!is_undefined(value), "py_value() sorts undefined values");
            Ok(value)
        }
    }
}

/// Returns true if an optional boolean argument is true.
pub(crate) fn flag(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}
