//! Filters that take any value.

use minijinja::Value;

use crate::arguments::{Args, required};
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::convert::flag;
use crate::python::{attribute, method_names, repr};
use crate::value::dict;
use crate::value::{
    Generator, GeneratorKind, PyObject, Undefined, View, ViewKind, is_undefined, iterate, length, py_object, text,
    type_name,
};
use crate::{budget, taint};

pub(super) fn default(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [default, boolean] = args.bind("default", ["default_value", "boolean"])?;
    if is_undefined(value) || (flag(boolean) && !value.is_true()) {
        return Ok(default.unwrap_or_else(|| Value::from("")));
    }
    Ok(value.clone())
}

pub(super) fn length_of(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("length", [])?;
    if let Some(PyObject::Loop(object)) = py_object(value) {
        return Ok(Value::from(object.length(interpreter)?));
    }
    budget::scan(value.as_str().map_or(0, str::len))?;
    match length(value) {
        Some(len) => Ok(Value::from(len)),
        None => Err(fail(format!("object of type '{}' has no len()", type_name(value)))),
    }
}

pub(super) fn string(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("string", [])?;
    match value.as_str() {
        Some(_) => Ok(value.clone()),
        None => text(repr::to_str(interpreter, value)?),
    }
}

pub(super) fn items(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("items", [])?;
    Generator::value(GeneratorKind::Function("do_items"), |items| {
        if is_undefined(value) {
            return Ok(());
        }
        if dict(value).is_none() {
            return Err(fail("Can only get item pairs from a mapping."));
        }
        for item in iterate(&View::value(ViewKind::Items, value))? {
            items.push(item?);
        }
        Ok(())
    })
}

/// Returns `value.name`, but never an item.
pub(super) fn attr(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [name] = args.bind("attr", ["name"])?;
    let name = required(name, "attr", "name")?;
    if name.as_str().is_none() {
        return Err(fail(format!("attribute name must be string, not '{}'", type_name(&name))));
    }
    if matches!(py_object(value), Some(PyObject::Template(_))) {
        return Ok(Undefined::Member { owner: type_name(value), name }.value());
    }
    if dict(value).is_some() && method_names::find(value, &taint::strip(name.as_str().unwrap_or_default())).is_none() {
        return Ok(Undefined::Member { owner: type_name(value), name }.value());
    }
    attribute::attribute(interpreter, value, &name)
}
