//! `value.name`, `value[key]` and `value[a:b:c]`, by the rules of Jinja2's sandbox.

use std::borrow::Cow;

use minijinja::Value;

use crate::error::{Fallible, Limit, fail, limit, undefined};
use crate::interpreter::Interpreter;
use crate::python::convert::int_arg;
use crate::python::method_names;
use crate::value::Macro;
use crate::value::as_digits;
use crate::value::none;
use crate::value::{
    Block, Method, PyObject, PyValue, Seq, SeqKind, Undefined, dict, int_value, length, list, object_name, py_object,
    py_value, text_like, tuple, type_name,
};
use crate::{budget, taint};

/// Shorter names are looked up in negligible time.
const NAME_BYTES_PER_STEP: usize = 64;
/// The number of a template's blocks that are searched in the time of one step.
const BLOCKS_PER_STEP: usize = 4;

/// Evaluates `value.name`: an attribute, else an item of that name, else undefined.
pub(crate) fn attribute(interpreter: &mut dyn Interpreter, value: &Value, name: &Value) -> Fallible<Value> {
    let Some(text) = name.as_str() else {
        return item(interpreter, value, name);
    };
    if let Some(found) = python_attribute(interpreter, value, &taint::strip(text))? {
        return Ok(found);
    }
    match py_value(value) {
        PyValue::Object(PyObject::Dict(entries)) => {
            budget::scan(text.len())?;
            Ok(entries.get_str(text).cloned().unwrap_or_else(|| missing(value, name)))
        }
        PyValue::Undefined(undefined) => Err(undefined.error()),
        _ => Ok(missing(value, name)),
    }
}

/// Returns true if values of some type have an attribute of this name in Python, so that it may not
/// be a key.
pub(crate) fn is_special(name: &str) -> bool {
    name.starts_with("__") || NUMBER_ATTRIBUTES.contains(&name) || method_names::is_method(name)
}

/// Evaluates `value.name` for a name that is not special; nothing if there is none. Items of dicts
/// are not copied.
pub(crate) fn key<'v>(
    interpreter: &mut dyn Interpreter,
    value: &'v Value,
    name: &str,
) -> Fallible<Option<Cow<'v, Value>>> {
    match py_object(value) {
        Some(PyObject::Dict(entries)) => {
            budget::steps(name.len() / NAME_BYTES_PER_STEP)?;
            Ok(entries.get_str(name).map(Cow::Borrowed))
        }
        Some(PyObject::Undefined(undefined)) => Err(undefined.error()),
        Some(object) => Ok(object_attribute(interpreter, object, name)?.map(Cow::Owned)),
        None if value.is_undefined() => Err(undefined("value is undefined")),
        None => Ok(None),
    }
}

/// Evaluates `value[key]`: an item, else an attribute of that name, else undefined.
pub(crate) fn item(interpreter: &mut dyn Interpreter, value: &Value, key: &Value) -> Fallible<Value> {
    if let Some(found) = subscript(value, key)? {
        return Ok(found);
    }
    match key.as_str() {
        Some(name) => {
            Ok(python_attribute(interpreter, value, &taint::strip(name))?.unwrap_or_else(|| missing(value, key)))
        }
        None => Ok(missing(value, key)),
    }
}

pub(crate) fn missing(value: &Value, name: &Value) -> Value {
    Undefined::Member { owner: type_name(value), name: name.clone() }.value()
}

/// Returns Python's `value[key]`; nothing if Python raises TypeError or LookupError.
pub(crate) fn subscript(value: &Value, key: &Value) -> Fallible<Option<Value>> {
    match py_value(value) {
        PyValue::Object(PyObject::Dict(entries)) => Ok(entries.get(key).ok().flatten().cloned()),
        PyValue::Undefined(undefined) => Err(undefined.error()),
        PyValue::Str(content) => char_at(value, content, key),
        PyValue::Object(PyObject::Seq(items)) => {
            Ok(index(key, || Some(items.items().len())).and_then(|at| items.items().get(at).cloned()))
        }
        PyValue::Object(PyObject::Range(range)) => {
            Ok(index(key, || Some(range.len())).and_then(|at| range.get(at)).map(Value::from))
        }
        _ => Ok(None),
    }
}

/// Returns the position of an integer key.
fn index(key: &Value, len: impl FnOnce() -> Option<usize>) -> Option<usize> {
    let at = match py_value(key) {
        PyValue::Int(at) => at,
        PyValue::Bool(flag) => i128::from(flag),
        _ => return None,
    };
    let at = if at < 0 { at + len()? as i128 } else { at };
    usize::try_from(at).ok()
}

fn char_at(value: &Value, content: &str, key: &Value) -> Fallible<Option<Value>> {
    let at = match py_value(key) {
        PyValue::Int(at) => at,
        PyValue::Bool(flag) => i128::from(flag),
        _ => return Ok(None),
    };
    let Ok(skip) = usize::try_from(if at < 0 { -(at + 1) } else { at }) else {
        return Ok(None);
    };
    budget::scan(2 * skip.min(content.len()))?;
    let c = if at < 0 { content.chars().rev().nth(skip) } else { content.chars().nth(skip) };
    c.map(|c| text_like(value, c.to_string())).transpose()
}

/// Returns an attribute that values of this type have in Python. An attribute that the sandbox
/// withholds is undefined.
fn python_attribute(interpreter: &mut dyn Interpreter, value: &Value, name: &str) -> Fallible<Option<Value>> {
    if let Some(name) = method_names::find(value, name) {
        return Ok(Some(PyObject::Method(Method { receiver: value.clone(), name }).value()));
    }
    if method_names::is_withheld(value, name) {
        let reason = format!("access to attribute '{name}' of '{}' is unsafe", object_name(value));
        return Ok(Some(Undefined::because(reason)));
    }
    match py_value(value) {
        PyValue::Object(object) => object_attribute(interpreter, object, name),
        PyValue::Int(_) | PyValue::Bool(_) => number_attribute(value, name),
        PyValue::Float(float) => Ok(match name {
            "real" => Some(Value::from(float)),
            "imag" => Some(Value::from(0.0)),
            _ => None,
        }),
        _ => Ok(None),
    }
}

const NUMBER_ATTRIBUTES: [&str; 4] = ["real", "imag", "numerator", "denominator"];

fn number_attribute(value: &Value, name: &str) -> Fallible<Option<Value>> {
    match name {
        "real" | "numerator" => as_digits(value).map(int_value).transpose(),
        "imag" => Ok(Some(Value::from(0))),
        "denominator" => Ok(Some(Value::from(1))),
        _ => Ok(None),
    }
}

fn object_attribute(interpreter: &mut dyn Interpreter, object: &PyObject, name: &str) -> Fallible<Option<Value>> {
    match object {
        PyObject::Loop(object) => object.attribute(interpreter, name),
        object => plain_attribute(object, name),
    }
}

fn plain_attribute(object: &PyObject, name: &str) -> Fallible<Option<Value>> {
    match object {
        PyObject::Namespace(namespace) => namespace.get(name),
        PyObject::Range(range) => Ok(match name {
            "start" => Some(Value::from(range.start())),
            "stop" => Some(Value::from(range.stop())),
            "step" => Some(Value::from(range.step())),
            _ => None,
        }),
        PyObject::Seq(group) if group.kind() == SeqKind::Group => Ok(match name {
            "grouper" => group.items().first().cloned(),
            "list" => group.items().get(1).cloned(),
            _ => None,
        }),
        PyObject::Macro(object) => macro_attribute(object, name),
        PyObject::Template(blocks) => Ok(block(blocks, name)),
        PyObject::Block(block) if name == "name" => Ok(Some(block.name.clone())),
        PyObject::Block(block) if name == "super" => {
            Ok(Some(Undefined::because(format!("there is no parent block called '{}'.", block.name))))
        }
        PyObject::Counter(counter) => Ok((name == "current").then(|| counter.current())),
        _ => Ok(None),
    }
}

fn block(blocks: &[Block], name: &str) -> Option<Value> {
    budget::spend(blocks.len() / BLOCKS_PER_STEP);
    let found = blocks.iter().find(|block| block.name.as_str() == Some(name))?;
    Some(PyObject::Block(found.clone()).value())
}

fn macro_attribute(object: &Macro, name: &str) -> Fallible<Option<Value>> {
    let spec = object.spec();
    Ok(Some(match name {
        "name" => spec.name.as_deref().map_or_else(none, Value::from),
        "arguments" => tuple(spec.params.clone())?,
        "caller" => Value::from(spec.takes_caller),
        "catch_kwargs" => Value::from(spec.takes_kwargs),
        "catch_varargs" => Value::from(spec.takes_varargs),
        _ => return Ok(None),
    }))
}

/// Evaluates `value[start:stop:step]`; a missing bound is `None`.
pub(crate) fn slice(value: &Value, bounds: &[Value]) -> Fallible<Value> {
    match py_value(value) {
        PyValue::Undefined(undefined) => Err(undefined.error()),
        PyValue::Str(content) => {
            budget::scan(2 * content.len())?;
            let range = Bounds::read(bounds)?.resolve(length(value).unwrap_or(0));
            if range.step != 1 {
                budget::room(content.len().saturating_mul(size_of::<char>()))?;
            }
            text_like(value, slice_text(content, &range))
        }
        PyValue::Object(PyObject::Seq(items)) => slice_items(items, &Bounds::read(bounds)?),
        PyValue::Object(PyObject::Range(range)) => {
            let bounds = Bounds::read(bounds)?;
            let (start, stop) = bounds.ends(i64::try_from(range.len()).unwrap_or(i64::MAX));
            let range = range.slice(start.into(), stop.into(), bounds.step.into());
            range.map(|range| PyObject::Range(range).value()).ok_or_else(|| limit(Limit::Integer))
        }
        _ if dict(value).is_some() => Err(fail("unhashable type: 'slice'")),
        _ => Err(fail(format!("'{}' is not subscriptable", object_name(value)))),
    }
}

/// Returns true if an error of Python's `value[start:stop:step]` would be TypeError or LookupError.
pub(crate) fn slices_to_undefined(value: &Value, bounds: &[Value]) -> bool {
    let no_step = matches!(py_value(&bounds[2]), PyValue::Int(0) | PyValue::Bool(false));
    match py_value(value) {
        PyValue::Undefined(_) => false,
        PyValue::Str(_) | PyValue::Object(PyObject::Seq(_) | PyObject::Range(_)) => !no_step,
        _ => true,
    }
}

fn slice_items(items: &Seq, bounds: &Bounds) -> Fallible<Value> {
    let picked = bounds.resolve(items.items().len());
    budget::steps(picked.count)?;
    let items_picked = picked.positions().filter_map(|at| items.items().get(at).cloned()).collect();
    if items.is_list() { list(items_picked) } else { tuple(items_picked) }
}

fn slice_text(content: &str, picked: &Picked) -> String {
    if content.is_ascii() && picked.step == 1 {
        return content.get(picked.start..picked.start + picked.count).unwrap_or_default().to_owned();
    }
    if picked.step == 1 {
        return content.chars().skip(picked.start).take(picked.count).collect();
    }
    let chars: Vec<char> = content.chars().collect();
    picked.positions().filter_map(|at| chars.get(at)).collect()
}

/// The bounds of a slice, as written.
struct Bounds {
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
}

/// The positions that a slice picks from a sequence of known length.
struct Picked {
    start: usize,
    count: usize,
    step: i64,
}

impl Bounds {
    fn read(bounds: &[Value]) -> Fallible<Self> {
        let bound = |value: &Value| if value.is_none() { Ok(None) } else { slice_index(value).map(Some) };
        let step = bound(&bounds[2])?.unwrap_or(1);
        if step == 0 {
            return Err(fail("slice step cannot be zero"));
        }
        Ok(Self { start: bound(&bounds[0])?, stop: bound(&bounds[1])?, step })
    }

    /// Returns the first position and the position behind the last in a sequence of this length.
    fn ends(&self, len: i64) -> (i64, i64) {
        let (lowest, highest) = if self.step > 0 { (0, len) } else { (-1, len - 1) };
        let clamp = |at: i64| (if at < 0 { at.saturating_add(len) } else { at }).clamp(lowest, highest);
        let start = self.start.map_or(if self.step > 0 { lowest } else { highest }, clamp);
        let stop = self.stop.map_or(if self.step > 0 { highest } else { lowest }, clamp);
        (start, stop)
    }

    fn resolve(&self, len: usize) -> Picked {
        let (start, stop) = self.ends(i64::try_from(len).unwrap_or(i64::MAX));
        let span = if self.step > 0 { stop - start } else { start - stop };
        let step = i64::try_from(self.step.unsigned_abs()).unwrap_or(i64::MAX);
        let count = if span > 0 { (span - 1) / step + 1 } else { 0 };
        Picked {
            start: usize::try_from(start).unwrap_or(0),
            count: usize::try_from(count).unwrap_or(0),
            step: self.step,
        }
    }
}

impl Picked {
    fn positions(&self) -> impl Iterator<Item = usize> {
        let (start, step) = (self.start as i64, self.step);
        (0..self.count as i64).filter_map(move |at| usize::try_from(start + at.saturating_mul(step)).ok())
    }
}

fn slice_index(value: &Value) -> Fallible<i64> {
    int_arg(value).map_err(|error| match py_value(value) {
        PyValue::Undefined(_) => fail("slice indices must be integers or None or have an __index__ method"),
        _ => error,
    })
}
