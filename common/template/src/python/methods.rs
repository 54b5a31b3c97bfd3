//! The methods of Python's types, by name.

mod bytes;
mod dicts;
mod numbers;
mod objects;
mod sequences;
mod texts;

use minijinja::Value;

use super::super::error::{Error, Fallible, fail};
use super::super::machine::Machine;
use super::super::value::{Builtin, CounterKind, Obj, Py, py};
use super::call::Args;

/// The name of a method that the value has and the sandbox allows.
pub(crate) fn find(value: &Value, name: &str) -> Option<&'static str> {
    let markup = if value.is_safe() { texts::MARKUP_NAMES } else { &[] };
    names(value).iter().chain(markup).find(|known| **known == name).copied()
}

/// Whether values of some type have a method of this name.
pub(crate) fn is_method(name: &str) -> bool {
    let types = [
        texts::NAMES,
        texts::MARKUP_NAMES,
        bytes::NAMES,
        numbers::INT_NAMES,
        numbers::FLOAT_NAMES,
        sequences::LIST_NAMES,
        sequences::MUTATING,
    ];
    let objects = [dicts::NAMES, dicts::MUTATING, objects::LOOP_NAMES, objects::CYCLER_NAMES, objects::DICT_TYPE_NAMES];
    types.iter().chain(&objects).any(|names| names.contains(&name))
}

/// Methods that are not written.
const UNWRITTEN: &[&str] = &["from_bytes", "fromhex", "to_bytes"];

/// Whether the value has a method of this name that always fails.
pub(crate) fn is_unwritten(value: &Value, name: &str) -> bool {
    UNWRITTEN.contains(&name) && find(value, name).is_some()
}

/// Whether Python has this attribute but the sandbox withholds it: what changes a value, and what reaches into Python.
pub(crate) fn is_withheld(value: &Value, name: &str) -> bool {
    let mutating = match py(value) {
        Py::Obj(Obj::Seq(seq)) if seq.is_list() => sequences::MUTATING,
        Py::Obj(Obj::Dict(_)) => dicts::MUTATING,
        _ => &[],
    };
    mutating.contains(&name) || (name.starts_with("__") && UNIVERSAL.contains(&name))
}

/// What every Python object has.
const UNIVERSAL: &[&str] = &[
    "__class__",
    "__delattr__",
    "__dir__",
    "__doc__",
    "__eq__",
    "__format__",
    "__ge__",
    "__getattribute__",
    "__getstate__",
    "__gt__",
    "__hash__",
    "__init__",
    "__init_subclass__",
    "__le__",
    "__lt__",
    "__ne__",
    "__new__",
    "__reduce__",
    "__reduce_ex__",
    "__repr__",
    "__setattr__",
    "__sizeof__",
    "__str__",
    "__subclasshook__",
];

fn names(value: &Value) -> &'static [&'static str] {
    match py(value) {
        Py::Str(_) => texts::NAMES,
        Py::Int(_) | Py::Bool(_) => numbers::INT_NAMES,
        Py::Float(_) => numbers::FLOAT_NAMES,
        Py::Obj(object) => object_names(object),
        Py::None | Py::Undefined(_) => &[],
    }
}

fn object_names(object: &Obj) -> &'static [&'static str] {
    match object {
        Obj::Seq(seq) if seq.is_list() => sequences::LIST_NAMES,
        Obj::Seq(_) | Obj::Range(_) => sequences::NAMES,
        Obj::Dict(_) => dicts::NAMES,
        Obj::BigInt(_) => numbers::INT_NAMES,
        Obj::Bytes(_) => bytes::NAMES,
        Obj::Loop(_) => objects::LOOP_NAMES,
        Obj::Counter(counter) if counter.kind == CounterKind::Cycler => objects::CYCLER_NAMES,
        Obj::Builtin(Builtin::Dict) => objects::DICT_TYPE_NAMES,
        _ => &[],
    }
}

/// `receiver.name(args)`, for a name that [`find`] gave.
pub(crate) fn call(machine: &mut Machine, receiver: &Value, name: &'static str, args: &Args<'_>) -> Fallible<Value> {
    if UNWRITTEN.contains(&name) {
        return Err(unknown(name));
    }
    match py(receiver) {
        Py::Str(text) => texts::call(machine, receiver, text, name, args),
        Py::Int(_) | Py::Bool(_) | Py::Float(_) | Py::Obj(Obj::BigInt(_)) => numbers::call(receiver, name, args),
        Py::Obj(Obj::Bytes(bytes)) => bytes::call(machine, bytes, name, args),
        Py::Obj(Obj::Dict(dict)) => dicts::call(receiver, dict, name, args),
        Py::Obj(Obj::Seq(_) | Obj::Range(_)) => sequences::call(receiver, name, args),
        Py::Obj(object) => objects::call(object, name, args),
        Py::None | Py::Undefined(_) => Err(unknown(name)),
    }
}

/// For names that are in a table but not in its function.
fn unknown(name: &str) -> Error {
    fail(format!("the method '{name}' is not supported"))
}
