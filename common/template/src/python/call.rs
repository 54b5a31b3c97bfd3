//! Calls: arguments with `*` and `**`, and the values that can be called.

use minijinja::Value;

use super::{attribute, methods};
use crate::arguments::{Args, required};
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::program::MacroSpec;
use crate::python::globals;
use crate::python::method_names;
use crate::value::{CounterKind, Dict, Loop, PyObject, PyValue, Undefined, dict, iterate, py_value, tuple, type_name};
use crate::{budget, taint};

/// Adds the items of `*args`.
pub(crate) fn add_positional(positional: &mut Vec<Value>, splat: &Value) -> Fallible<()> {
    for item in iterate(splat)? {
        budget::alloc_values(1)?;
        positional.push(item?);
    }
    Ok(())
}

/// Adds the entries of `**kwargs`.
pub(crate) fn add_keywords(keywords: &mut Vec<(Value, Value)>, splat: &Value) -> Fallible<()> {
    let Some(entries) = dict(splat) else {
        return Err(fail(format!("argument after ** must be a mapping, not {}", type_name(splat))));
    };
    budget::alloc_values(entries.len())?;
    for (name, value) in entries.entries() {
        let Some(text) = name.as_str() else {
            return Err(fail("keywords must be strings"));
        };
        budget::steps(keywords.len())?;
        if keywords.iter().any(|(known, _)| known.as_str().is_some_and(|known| taint::same(known, text))) {
            return Err(fail(format!("got multiple values for keyword argument '{text}'")));
        }
        keywords.push((name.clone(), value.clone()));
    }
    Ok(())
}

/// Evaluates `callee(args)`.
pub(crate) fn call(interpreter: &mut dyn Interpreter, callee: &Value, args: &Args<'_>) -> Fallible<Value> {
    match py_value(callee) {
        PyValue::Undefined(undefined) => Err(undefined.error()),
        PyValue::Object(PyObject::Method(method)) => methods::call(interpreter, &method.receiver, method.name, args),
        PyValue::Object(PyObject::Macro(object)) => call_macro(interpreter, callee, object.spec(), args),
        PyValue::Object(PyObject::Builtin(builtin)) => globals::call(interpreter, *builtin, args),
        PyValue::Object(PyObject::Block(block)) => {
            args.bind::<0>("block", [])?;
            call(interpreter, &block.function, args)
        }
        PyValue::Object(PyObject::Loop(object)) => recurse(interpreter, object, args),
        PyValue::Object(PyObject::Counter(counter)) if counter.kind == CounterKind::Joiner => {
            args.bind::<0>("joiner", [])?;
            Ok(counter.join())
        }
        _ => Err(fail(format!("'{}' object is not callable", type_name(callee)))),
    }
}

/// Evaluates `callee(a, b, ...)`.
pub(crate) fn call_positional(interpreter: &mut dyn Interpreter, callee: &Value, args: &[Value]) -> Fallible<Value> {
    call(interpreter, callee, &Args::of(args))
}

/// Evaluates `receiver.name(args)`; a method is called without creating a value for it.
pub(crate) fn call_method(
    interpreter: &mut dyn Interpreter,
    receiver: &Value,
    name: &Value,
    args: &Args<'_>,
) -> Fallible<Value> {
    if let Some(method) = name.as_str().and_then(|name| method_names::find(receiver, name)) {
        return methods::call(interpreter, receiver, method, args);
    }
    let callee = attribute::attribute(interpreter, receiver, name)?;
    call(interpreter, &callee, args)
}

/// Returns true if a value can be called.
pub(crate) fn is_callable(value: &Value) -> bool {
    match py_value(value) {
        // Python's Undefined has `__call__`, which fails.
        PyValue::Undefined(_) => true,
        PyValue::Object(PyObject::Counter(counter)) => counter.kind == CounterKind::Joiner,
        PyValue::Object(
            PyObject::Method(_) | PyObject::Macro(_) | PyObject::Builtin(_) | PyObject::Loop(_) | PyObject::Block(_),
        ) => true,
        _ => false,
    }
}

/// Evaluates `loop(items)`.
fn recurse(interpreter: &mut dyn Interpreter, object: &Loop, args: &Args<'_>) -> Fallible<Value> {
    let [items] = args.bind("loop", ["iterable"])?;
    let items = required(items, "loop", "iterable")?;
    let Some(function) = &object.recurse else {
        return Err(fail("the loop must have the 'recursive' marker to be called recursively"));
    };
    call_positional(interpreter, function, &[items, Value::from(object.depth0 + 1)])
}

fn call_macro(interpreter: &mut dyn Interpreter, callee: &Value, spec: &MacroSpec, args: &Args<'_>) -> Fallible<Value> {
    let values = macro_args(spec, args)?;
    interpreter.call(callee, values)
}

/// Returns the values of a macro's variables: one per parameter, then the special ones that the
/// body uses.
fn macro_args(spec: &MacroSpec, args: &Args<'_>) -> Fallible<Vec<Value>> {
    let mut keywords = args.keywords.clone();
    let count = spec.params.len();
    let mut values: Vec<Value> = args.positional.iter().take(count).cloned().collect();
    let mut caller_passed = values.len() == count && has_param(spec, "caller");
    for (at, param) in spec.params.iter().enumerate().skip(values.len()) {
        caller_passed = caller_passed || param.as_str() == Some("caller");
        values.push(take(&mut keywords, param.as_str()).unwrap_or_else(|| not_given(spec, at)));
    }
    if spec.takes_caller && !caller_passed {
        let caller = take(&mut keywords, Some("caller")).filter(|caller| !caller.is_none());
        values.push(caller.unwrap_or_else(|| Undefined::because("No caller defined")));
    }
    check_surplus(spec, args, &keywords)?;
    if spec.takes_kwargs {
        values.push(Dict::value(keywords)?);
    }
    if spec.takes_varargs {
        values.push(tuple(args.positional.iter().skip(count).cloned().collect())?);
    }
    Ok(values)
}

/// Returns the value of a parameter without an argument.
fn not_given(spec: &MacroSpec, at: usize) -> Value {
    if at < spec.required {
        return Undefined::because(format!("parameter '{}' was not provided", spec.params[at]));
    }
    PyObject::Missing.value()
}

fn has_param(spec: &MacroSpec, name: &str) -> bool {
    spec.params.iter().any(|param| param.as_str() == Some(name))
}

fn take(keywords: &mut Vec<(Value, Value)>, name: Option<&str>) -> Option<Value> {
    let at = keywords
        .iter()
        .position(|(known, _)| known.as_str().zip(name).is_some_and(|(known, name)| taint::same(known, name)))?;
    Some(keywords.remove(at).1)
}

fn check_surplus(spec: &MacroSpec, args: &Args<'_>, keywords: &[(Value, Value)]) -> Fallible<()> {
    let name = spec.name.as_deref().map_or_else(|| "None".to_owned(), |name| format!("'{name}'"));
    if !spec.takes_kwargs
        && let Some((keyword, _)) = keywords.first()
    {
        return Err(fail(format!("macro {name} takes no keyword argument '{keyword}'")));
    }
    if !spec.takes_varargs && args.positional.len() > spec.params.len() {
        return Err(fail(format!("macro {name} takes not more than {} argument(s)", spec.params.len())));
    }
    Ok(())
}
