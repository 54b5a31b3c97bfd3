//! Filters that take any value.

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::super::machine::Machine;
use super::super::marks;
use super::super::python::attribute;
use super::super::python::call::{Args, required};
use super::super::python::repr;
use super::super::value::{
    Generator, GeneratorKind, Obj, Undefined, View, ViewKind, is_undefined, iterate, length, obj, text, type_name,
};
use super::{flag, is_mapping};

pub(super) fn default(_: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [default, boolean] = args.bind("default", ["default_value", "boolean"])?;
    if is_undefined(value) || (flag(boolean) && !value.is_true()) {
        return Ok(default.unwrap_or_else(|| Value::from("")));
    }
    Ok(value.clone())
}

pub(super) fn length_of(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("length", [])?;
    if let Some(Obj::Loop(object)) = obj(value) {
        return Ok(Value::from(object.length(machine)?));
    }
    budget::scan(value.as_str().map_or(0, str::len))?;
    match length(value) {
        Some(len) => Ok(Value::from(len)),
        None => Err(fail(format!("object of type '{}' has no len()", type_name(value)))),
    }
}

pub(super) fn string(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("string", [])?;
    match value.as_str() {
        Some(_) => Ok(value.clone()),
        None => text(repr::to_str(machine, value)?),
    }
}

pub(super) fn items(_: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("items", [])?;
    Generator::value(GeneratorKind::Function("do_items"), |items| {
        if is_undefined(value) {
            return Ok(());
        }
        if !is_mapping(value) {
            return Err(fail("Can only get item pairs from a mapping."));
        }
        for item in iterate(&View::value(ViewKind::Items, value))? {
            items.push(item?);
        }
        Ok(())
    })
}

/// Like `value.name`, but never an item.
pub(super) fn attr(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [name] = args.bind("attr", ["name"])?;
    let name = required(name, "attr", "name")?;
    if name.as_str().is_none() {
        return Err(fail(format!("attribute name must be string, not '{}'", type_name(&name))));
    }
    if matches!(obj(value), Some(Obj::Template(_))) {
        return Ok(Undefined::Member { owner: type_name(value), name }.value());
    }
    if is_mapping(value)
        && super::super::python::methods::find(value, &marks::plain(name.as_str().unwrap_or_default())).is_none()
    {
        return Ok(Undefined::Member { owner: type_name(value), name }.value());
    }
    attribute::attribute(machine, value, &name)
}
