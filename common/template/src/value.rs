//! Python values on top of minijinja's: scalars and texts are native, everything else is one [`Obj`].
//!
//! Values are immutable, as the sandbox of transformers makes them; only namespaces, loops and generators have state.
//! Every container knows how deep it nests, and none may nest deeper than [`MAX_NESTING`]: that bounds the stack that
//! printing, comparing and dropping it needs.

mod bigint;
mod bytes;
mod callable;
mod dict;
mod generator;
mod iterate;
mod looping;
mod namespace;
mod sequence;
mod undefined;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Object, ObjectRepr, ValueKind};

pub(crate) use bigint::{BigInt, as_digits, int_value};
pub(crate) use bytes::{Bytes, byte_of, letter_of, push_bytes};
pub(crate) use callable::{Block, Builtin, Counter, CounterKind, Macro, MacroSpec, Method, Shared};
pub(crate) use dict::{Dict, KeySet, View, ViewKind, hash};
pub(crate) use generator::{Generator, GeneratorKind};
pub(crate) use iterate::{Items, Range, is_iterable, iterate, length, to_vec};
pub(crate) use looping::Loop;
pub(crate) use namespace::{Namespace, Namespaces};
pub(crate) use sequence::{Seq, SeqKind};
pub(crate) use undefined::Undefined;

use super::budget;
use super::error::{Fallible, Limit, limit};

/// How deep lists, dicts and the like may nest in each other. JSON parsers stop at 128.
pub(crate) const MAX_NESTING: u16 = 256;

/// Every Python value that minijinja has no exact counterpart for.
#[derive(Debug)]
pub(crate) enum Obj {
    Undefined(Undefined),
    Seq(Seq),
    Dict(Dict),
    View(View),
    Range(Range),
    Generator(Generator),
    BigInt(BigInt),
    Bytes(Bytes),
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

impl Obj {
    pub(crate) fn value(self) -> Value {
        Value::from_object(self)
    }

    /// How deep this value nests; scalars are 0.
    fn nesting(&self) -> u16 {
        match self {
            Self::Seq(seq) => seq.nesting(),
            Self::Dict(dict) => dict.nesting(),
            Self::Generator(generator) => generator.nesting(),
            Self::View(view) => view.nesting(),
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
            Self::Bytes(bytes) => !bytes.is_empty(),
            Self::Dict(dict) => dict.len() > 0,
            Self::View(view) => view.dict().len() > 0,
            Self::Range(range) => range.len() > 0,
            Self::Loop(object) => object.truthy(),
            _ => true,
        }
    }
}

impl Object for Obj {
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

/// A value, sorted by what Python would call its type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Py<'a> {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(&'a str),
    Undefined(&'a Undefined),
    Obj(&'a Obj),
}

/// Sorts a value by its Python type.
pub(crate) fn py(value: &Value) -> Py<'_> {
    if let Some(text) = value.as_str() {
        return Py::Str(text);
    }
    if let Some(object) = obj(value) {
        return match object {
            Obj::Undefined(undefined) => Py::Undefined(undefined),
            object => Py::Obj(object),
        };
    }
    match value.kind() {
        ValueKind::Bool => Py::Bool(value.is_true()),
        ValueKind::Number if value.is_integer() => Py::Int(i128::try_from(value.clone()).unwrap_or_default()),
        ValueKind::Number => Py::Float(f64::try_from(value.clone()).unwrap_or(f64::NAN)),
        ValueKind::None => Py::None,
        _ => Py::Undefined(&Undefined::ANONYMOUS),
    }
}

/// The object behind a value, if it is one of ours.
pub(crate) fn obj(value: &Value) -> Option<&Obj> {
    value.downcast_object_ref::<Obj>()
}

/// Whether the value is undefined.
pub(crate) fn is_undefined(value: &Value) -> bool {
    value.is_undefined() || matches!(obj(value), Some(Obj::Undefined(_)))
}

/// The items of a list or tuple.
pub(crate) fn seq(value: &Value) -> Option<&Seq> {
    match obj(value)? {
        Obj::Seq(seq) => Some(seq),
        _ => None,
    }
}

/// The entries of a dict.
pub(crate) fn dict(value: &Value) -> Option<&Dict> {
    match obj(value)? {
        Obj::Dict(dict) => Some(dict),
        _ => None,
    }
}

/// A new text, charged to the budget.
pub(crate) fn text(text: impl Into<String>) -> Fallible<Value> {
    let text = text.into();
    budget::alloc(text.len())?;
    let value = Value::from(text);
    budget::track(&value);
    Ok(value)
}

/// A new text of the same kind as `like`: marked as safe (Python: `Markup`) if that is.
pub(crate) fn text_like(like: &Value, content: String) -> Fallible<Value> {
    if like.is_safe() { safe_text(content) } else { text(content) }
}

/// What texts are put together in is kept up to this size.
const MAX_SCRATCH: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A new text of these parts.
pub(crate) fn joined<'a>(parts: impl Iterator<Item = &'a str> + Clone) -> Fallible<Value> {
    budget::alloc(parts.clone().map(str::len).sum())?;
    let value = SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        scratch.extend(parts);
        let value = Value::from(scratch.as_str());
        scratch.shrink_to(MAX_SCRATCH);
        value
    });
    budget::track(&value);
    Ok(value)
}

/// A part of the text in `whole`, of the same kind.
pub(crate) fn text_part(whole: &Value, part: &str) -> Fallible<Value> {
    if whole.as_str().is_some_and(|text| text.len() == part.len()) {
        return Ok(whole.clone());
    }
    if whole.is_safe() {
        return safe_text(part.to_owned());
    }
    budget::alloc(part.len())?;
    let value = Value::from(part);
    budget::track(&value);
    Ok(value)
}

/// A new text that is marked as safe.
pub(crate) fn safe_text(text: String) -> Fallible<Value> {
    budget::alloc(text.len())?;
    let value = Value::from_safe_string(text);
    budget::track(&value);
    Ok(value)
}

/// A new list, charged to the budget.
pub(crate) fn list(items: Vec<Value>) -> Fallible<Value> {
    Seq::value(SeqKind::List, items)
}

/// A new tuple, charged to the budget.
pub(crate) fn tuple(items: Vec<Value>) -> Fallible<Value> {
    Seq::value(SeqKind::Tuple, items)
}

/// Python's `None`.
pub(crate) fn none() -> Value {
    Value::from(())
}

/// How deep a value nests.
pub(crate) fn nesting(value: &Value) -> u16 {
    obj(value).map_or(0, Obj::nesting)
}

/// How deep a container of these values nests; an error if that is too deep.
pub(crate) fn nesting_above<'a>(values: impl IntoIterator<Item = &'a Value>) -> Fallible<u16> {
    let depth = values.into_iter().map(nesting).max().unwrap_or(0) + 1;
    if depth > MAX_NESTING { Err(limit(Limit::Nesting)) } else { Ok(depth) }
}

/// What Python's `type(x).__name__` says.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match py(value) {
        Py::None => "NoneType",
        Py::Bool(_) => "bool",
        Py::Int(_) => "int",
        Py::Float(_) => "float",
        Py::Str(_) if value.is_safe() => "Markup",
        Py::Str(_) => "str",
        Py::Undefined(_) => "Undefined",
        Py::Obj(object) => object_type_name(object),
    }
}

pub(crate) fn object_type_name(object: &Obj) -> &'static str {
    match object {
        Obj::Seq(seq) => seq.kind().type_name(),
        Obj::Dict(_) => "dict",
        Obj::View(view) => view.kind().type_name(),
        Obj::Range(_) => "range",
        Obj::Generator(generator) => generator.type_name(),
        Obj::BigInt(_) => "int",
        Obj::Bytes(_) => "bytes",
        Obj::Namespace(_) => "TemplateNamespace",
        Obj::Loop(_) => "LoopContext",
        Obj::Macro(_) => "Macro",
        Obj::Method(_) => "builtin_function_or_method",
        Obj::Builtin(builtin) => builtin.type_name(),
        Obj::Counter(counter) => counter.type_name(),
        Obj::Template(_) => "TemplateReference",
        Obj::Block(_) => "BlockReference",
        Obj::Undefined(_) | Obj::Missing => "Undefined",
    }
}

/// How jinja2 names a value in messages: `None`, or its type followed by "object".
pub(crate) fn object_name(value: &Value) -> String {
    match py(value) {
        Py::None => "None".to_owned(),
        _ => format!("{} object", type_name(value)),
    }
}
