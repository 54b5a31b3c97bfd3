//! The names of the methods of Python's types, and which of them the sandbox withholds.

use minijinja::Value;

use crate::error::{Error, fail};
use crate::value::{Builtin, CounterKind, PyObject, PyValue, py_value};

/// Returns the name of a method that the value has and the sandbox allows.
pub(crate) fn find(value: &Value, name: &str) -> Option<&'static str> {
    let markup = if value.is_safe() { MARKUP } else { &[] };
    names(value).iter().chain(markup).find(|known| **known == name).copied()
}

/// Returns true if values of some type have a method of this name.
pub(crate) fn is_method(name: &str) -> bool {
    let types = [STR, MARKUP, INT, FLOAT, LIST, LIST_MUTATING];
    let objects = [DICT, DICT_MUTATING, LOOP, CYCLER, DICT_TYPE];
    types.iter().chain(&objects).any(|names| names.contains(&name))
}

/// Returns true for methods that are not supported, because there are no `bytes`.
pub(crate) fn is_unsupported(name: &str) -> bool {
    matches!(name, "encode" | "from_bytes" | "fromhex" | "to_bytes")
}

/// Returns true if Python has this attribute but the sandbox withholds it, because it changes a
/// value or gives access to Python itself.
pub(crate) fn is_withheld(value: &Value, name: &str) -> bool {
    let mutating = match py_value(value) {
        PyValue::Object(PyObject::Seq(seq)) if seq.is_list() => LIST_MUTATING,
        PyValue::Object(PyObject::Dict(_)) => DICT_MUTATING,
        _ => &[],
    };
    mutating.contains(&name) || (name.starts_with("__") && UNIVERSAL.contains(&name))
}

/// The attributes of every Python object.
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
    match py_value(value) {
        PyValue::Str(_) => STR,
        PyValue::Int(_) | PyValue::Bool(_) => INT,
        PyValue::Float(_) => FLOAT,
        PyValue::Object(object) => object_names(object),
        PyValue::None | PyValue::Undefined(_) => &[],
    }
}

fn object_names(object: &PyObject) -> &'static [&'static str] {
    match object {
        PyObject::Seq(seq) if seq.is_list() => LIST,
        PyObject::Seq(_) | PyObject::Range(_) => SEQUENCE,
        PyObject::Dict(_) => DICT,
        PyObject::BigInt(_) => INT,
        PyObject::Loop(_) => LOOP,
        PyObject::Counter(counter) if counter.kind == CounterKind::Cycler => CYCLER,
        PyObject::Builtin(Builtin::Dict) => DICT_TYPE,
        _ => &[],
    }
}

/// Methods of `str`.
const STR: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];

/// Methods that only texts marked as safe have.
const MARKUP: &[&str] = &["escape", "striptags", "unescape"];

/// Methods of dicts.
const DICT: &[&str] = &["copy", "fromkeys", "get", "items", "keys", "values"];

/// Methods that change a dict.
const DICT_MUTATING: &[&str] = &["clear", "pop", "popitem", "setdefault", "update"];

/// Methods of integers and booleans.
const INT: &[&str] = &["as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes"];

/// Methods of floats.
const FLOAT: &[&str] = &["as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"];

/// Methods of `loop`.
const LOOP: &[&str] = &["changed", "cycle"];

/// Methods of cyclers.
const CYCLER: &[&str] = &["next", "reset"];

/// Methods of the global `dict`.
const DICT_TYPE: &[&str] = &["fromkeys"];

/// Methods of lists.
const LIST: &[&str] = &["copy", "count", "index"];

/// Methods of tuples and ranges.
const SEQUENCE: &[&str] = &["count", "index"];

/// Methods that change a list.
const LIST_MUTATING: &[&str] = &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];

/// Returns the error of a method that is in a table but not implemented.
pub(super) fn unsupported(name: &str) -> Error {
    fail(format!("the method '{name}' is not supported"))
}
