//! The one object type behind every Python value that has no exact counterpart in minijinja. Also
//! the properties of values that depend on their type alone.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Object, ObjectRepr, ValueKind};
use num_bigint::BigInt as Digits;

use super::bigint::BigInt;
use super::callable::{Block, Builtin, Counter, Macro, Method};
use super::dict::{Dict, EMPTY, View};
use super::generator::Generator;
use super::looping::Loop;
use super::namespace::Namespace;
use super::range::Range;
use super::sequence::Seq;
use super::undefined::Undefined;
use crate::budget;
use crate::error::{Fallible, Limit, limit};

/// The deepest nesting of lists, dicts and the like. JSON parsers stop at 128.
pub(crate) const MAX_NESTING: u16 = 256;

/// Every Python value that minijinja has no exact counterpart for.
#[derive(Debug)]
pub(crate) enum PyObject {
    Undefined(Undefined),
    Seq(Seq),
    Dict(Dict),
    View(View),
    Range(Range),
    Generator(Generator),
    BigInt(BigInt),
    Namespace(Arc<Namespace>),
    Loop(Loop),
    Macro(Macro),
    Method(Method),
    Builtin(Builtin),
    Counter(Counter),
    /// `self`, with the template's blocks.
    Template(Vec<Block>),
    Block(Block),
    /// A macro argument that was not passed.
    Missing,
}

impl PyObject {
    pub(crate) fn value(self) -> Value {
        Value::from_object(self)
    }

    /// Returns the nesting of this value; that of scalars is 0.
    fn nesting(&self) -> u16 {
        match self {
            Self::Seq(seq) => seq.nesting(),
            Self::Dict(dict) => dict.nesting(),
            Self::Generator(generator) => generator.nesting(),
            Self::View(view) => view.dict().nesting() + 1,
            Self::Method(method) => nesting(&method.receiver).saturating_add(1),
            Self::Loop(object) => object.nesting(),
            Self::Counter(counter) => counter.nesting(),
            _ => 0,
        }
    }

    fn truthy(&self) -> bool {
        match self {
            Self::Undefined(_) => false,
            Self::Seq(seq) => !seq.items().is_empty(),
            Self::Dict(dict) => dict.len() > 0,
            Self::View(view) => view.dict().len() > 0,
            Self::Range(range) => range.len() > 0,
            Self::Loop(object) => object.filter.is_some() || length(&object.iterable).is_none_or(|len| len > 0),
            _ => true,
        }
    }
}

impl Object for PyObject {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.truthy()
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<object>")
    }
}

/// A value by its Python type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PyValue<'a> {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(&'a str),
    Undefined(&'a Undefined),
    Object(&'a PyObject),
}

/// Returns a value by its Python type.
pub(crate) fn py_value(value: &Value) -> PyValue<'_> {
    if let Some(text) = value.as_str() {
        return PyValue::Str(text);
    }
    if let Some(object) = py_object(value) {
        return match object {
            PyObject::Undefined(undefined) => PyValue::Undefined(undefined),
            object => PyValue::Object(object),
        };
    }
    match value.kind() {
        ValueKind::Bool => PyValue::Bool(value.is_true()),
        ValueKind::Number if value.is_integer() => PyValue::Int(i128::try_from(value.clone()).unwrap_or_default()),
        ValueKind::Number => PyValue::Float(f64::try_from(value.clone()).unwrap_or(f64::NAN)),
        ValueKind::None => PyValue::None,
        _ => PyValue::Undefined(&Undefined::ANONYMOUS),
    }
}

/// Returns the object behind a value, if it is a [`PyObject`].
pub(crate) fn py_object(value: &Value) -> Option<&PyObject> {
    value.downcast_object_ref::<PyObject>()
}

/// Returns true if the value is undefined.
pub(crate) fn is_undefined(value: &Value) -> bool {
    value.is_undefined() || matches!(py_object(value), Some(PyObject::Undefined(_)))
}

/// Returns the items of a list or tuple.
pub(crate) fn seq(value: &Value) -> Option<&Seq> {
    match py_object(value)? {
        PyObject::Seq(seq) => Some(seq),
        _ => None,
    }
}

/// Returns the entries of a dict.
pub(crate) fn dict(value: &Value) -> Option<&Dict> {
    match py_object(value)? {
        PyObject::Dict(dict) => Some(dict),
        _ => None,
    }
}

impl View {
    /// Returns the dict that the view shows.
    pub(crate) fn dict(&self) -> &Dict {
        dict(&self.dict).unwrap_or(&EMPTY)
    }
}

/// Returns true if `iter(value)` works.
pub(crate) fn is_iterable(value: &Value) -> bool {
    match py_value(value) {
        PyValue::Str(_) | PyValue::Undefined(_) => true,
        PyValue::Object(object) => {
            let is_container = matches!(object, PyObject::Seq(_) | PyObject::Dict(_) | PyObject::View(_));
            is_container || matches!(object, PyObject::Range(_) | PyObject::Generator(_))
        }
        _ => false,
    }
}

/// Returns Python's `len(value)`; nothing if it has none.
pub(crate) fn length(value: &Value) -> Option<usize> {
    match py_value(value) {
        PyValue::Str(text) if text.is_ascii() => Some(text.len()),
        PyValue::Str(text) => Some(text.chars().count()),
        PyValue::Undefined(_) => Some(0),
        PyValue::Object(PyObject::Seq(seq)) => Some(seq.items().len()),
        PyValue::Object(PyObject::Dict(dict)) => Some(dict.len()),
        PyValue::Object(PyObject::View(view)) => Some(view.dict().len()),
        PyValue::Object(PyObject::Range(range)) => Some(range.len()),
        _ => None,
    }
}

/// Returns the integer in a value, of any size; booleans are integers.
pub(crate) fn as_digits(value: &Value) -> Option<Digits> {
    match py_value(value) {
        PyValue::Bool(flag) => Some(Digits::from(i32::from(flag))),
        PyValue::Int(int) => Some(Digits::from(int)),
        PyValue::Object(PyObject::BigInt(big)) => {
            budget::walked(big.digits().bits() as usize / 8);
            Some(big.digits().clone())
        }
        _ => None,
    }
}

/// Returns the nesting of a value.
pub(crate) fn nesting(value: &Value) -> u16 {
    py_object(value).map_or(0, PyObject::nesting)
}

/// Returns the nesting of a container of these values; fails if it is too deep.
pub(crate) fn nesting_above<'a>(values: impl IntoIterator<Item = &'a Value>) -> Fallible<u16> {
    let depth = values.into_iter().map(nesting).max().unwrap_or(0) + 1;
    if depth > MAX_NESTING { Err(limit(Limit::Nesting)) } else { Ok(depth) }
}

/// Returns Python's `type(x).__name__`.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match py_value(value) {
        PyValue::None => "NoneType",
        PyValue::Bool(_) => "bool",
        PyValue::Int(_) => "int",
        PyValue::Float(_) => "float",
        PyValue::Str(_) if value.is_safe() => "Markup",
        PyValue::Str(_) => "str",
        PyValue::Undefined(_) => "Undefined",
        PyValue::Object(object) => object_type_name(object),
    }
}

pub(crate) fn object_type_name(object: &PyObject) -> &'static str {
    match object {
        PyObject::Seq(seq) => seq.kind().type_name(),
        PyObject::Dict(_) => "dict",
        PyObject::View(view) => view.kind().type_name(),
        PyObject::Range(_) => "range",
        PyObject::Generator(generator) => generator.type_name(),
        PyObject::BigInt(_) => "int",
        PyObject::Namespace(_) => "TemplateNamespace",
        PyObject::Loop(_) => "LoopContext",
        PyObject::Macro(_) => "Macro",
        PyObject::Method(_) => "builtin_function_or_method",
        PyObject::Builtin(builtin) => builtin.type_name(),
        PyObject::Counter(counter) => counter.type_name(),
        PyObject::Template(_) => "TemplateReference",
        PyObject::Block(_) => "BlockReference",
        PyObject::Undefined(_) | PyObject::Missing => "Undefined",
    }
}

/// Returns the name of a value in jinja2's messages: `None`, or its type followed by "object".
pub(crate) fn object_name(value: &Value) -> String {
    match py_value(value) {
        PyValue::None => "None".to_owned(),
        _ => format!("{} object", type_name(value)),
    }
}
