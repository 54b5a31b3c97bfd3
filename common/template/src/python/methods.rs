//! The methods of Python's types.

mod dicts;
mod numbers;
mod objects;
mod sequences;
mod texts;

use minijinja::Value;

use super::method_names::{is_unsupported, unsupported};
use crate::arguments::Args;
use crate::error::Fallible;
use crate::interpreter::Interpreter;
use crate::value::{PyObject, PyValue, py_value};

/// Evaluates `receiver.name(args)`, for a name that [`find`](super::method_names::find) returned.
pub(crate) fn call(
    interpreter: &mut dyn Interpreter,
    receiver: &Value,
    name: &'static str,
    args: &Args<'_>,
) -> Fallible<Value> {
    if is_unsupported(name) {
        return Err(unsupported(name));
    }
    match py_value(receiver) {
        PyValue::Str(text) => texts::call(interpreter, receiver, text, name, args),
        PyValue::Int(_) | PyValue::Bool(_) | PyValue::Float(_) | PyValue::Object(PyObject::BigInt(_)) => {
            numbers::call(receiver, name, args)
        }
        PyValue::Object(PyObject::Dict(dict)) => dicts::call(receiver, dict, name, args),
        PyValue::Object(PyObject::Seq(_) | PyObject::Range(_)) => sequences::call(receiver, name, args),
        PyValue::Object(object) => objects::call(object, name, args),
        PyValue::None | PyValue::Undefined(_) => Err(unsupported(name)),
    }
}
