//! Jinja2's tests: the functions after `is`.

use minijinja::Value;

use crate::arguments::{Args, required};
use crate::error::{Fallible, fail};
use crate::interpreter::{Interpreter, Predicate};
use crate::python::contains::{contains, is_kept_once};
use crate::python::{arithmetic, call, order, repr, text};
use crate::value::{
    PyObject, PyValue, equal, hash, is_iterable, is_same, is_undefined, length, py_object, py_value, seq,
};
use crate::{budget, filters, taint};

use Predicate::{Check as Is, Test as By};

/// The tests, sorted by name.
const TESTS: &[(&str, Predicate)] = &[
    ("!=", By(differs)),
    ("<", By(less)),
    ("<=", By(at_most)),
    ("==", By(equals)),
    (">", By(greater)),
    (">=", By(at_least)),
    ("boolean", Is(|value| matches!(py_value(value), PyValue::Bool(_)))),
    ("callable", Is(call::is_callable)),
    ("defined", Is(|value| !is_undefined(value))),
    ("divisibleby", By(divisible)),
    ("eq", By(equals)),
    ("equalto", By(equals)),
    ("escaped", Is(Value::is_safe)),
    ("even", By(|interpreter, value, args| parity(interpreter, value, args, 0))),
    ("false", Is(|value| matches!(py_value(value), PyValue::Bool(false)))),
    (
        "filter",
        By(|_, value, args| named(value, args, |name| filters::find(name).is_some() || filters::is_unsupported(name))),
    ),
    ("float", Is(|value| matches!(py_value(value), PyValue::Float(_)))),
    ("ge", By(at_least)),
    ("greaterthan", By(greater)),
    ("gt", By(greater)),
    ("in", By(contained)),
    ("integer", Is(is_integer)),
    ("iterable", Is(is_iterable_or_loop)),
    ("le", By(at_most)),
    ("lessthan", By(less)),
    ("lower", By(|interpreter, value, args| cased(interpreter, value, args, text::is_lower))),
    ("lt", By(less)),
    ("mapping", Is(|value| matches!(py_object(value), Some(PyObject::Dict(_))))),
    ("ne", By(differs)),
    ("none", Is(Value::is_none)),
    ("number", Is(|value| is_integer(value) || matches!(py_value(value), PyValue::Float(_) | PyValue::Bool(_)))),
    ("odd", By(|interpreter, value, args| parity(interpreter, value, args, 1))),
    ("sameas", By(same)),
    ("sequence", Is(is_sequence)),
    ("string", Is(|value| value.as_str().is_some())),
    ("test", By(|_, value, args| named(value, args, |name| find(name).is_some()))),
    ("true", Is(|value| matches!(py_value(value), PyValue::Bool(true)))),
    ("undefined", Is(is_undefined)),
    ("upper", By(|interpreter, value, args| cased(interpreter, value, args, text::is_upper))),
];

/// Returns the test of this name.
pub(crate) fn find(name: &str) -> Option<Predicate> {
    let at = TESTS.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    Some(TESTS[at].1)
}

/// Returns the one argument.
fn argument(value: &Value, args: &Args<'_>, name: &str) -> Fallible<Value> {
    let [_, other] = args.after(value).bind("test", ["", name])?;
    required(other, "test", name)
}

/// Returns the other operand of an operator, which is positional only.
fn operand<'a>(args: &'a Args<'_>) -> Fallible<&'a Value> {
    match args.only_positional("operator")? {
        [right] => Ok(right),
        other => Err(fail(format!("expected 2 arguments, got {}", other.len() + 1))),
    }
}

fn equals(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    equal(value, operand(args)?)
}

fn differs(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    Ok(!equal(value, operand(args)?)?)
}

fn less(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    order::compare(value, operand(args)?, "<")
}

fn at_most(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    order::compare(value, operand(args)?, "<=")
}

fn greater(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    order::compare(value, operand(args)?, ">")
}

fn at_least(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    order::compare(value, operand(args)?, ">=")
}

fn contained(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    contains(&argument(value, args, "seq")?, value)
}

fn same(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    budget::scan(value.as_str().map_or(0, str::len))?;
    let other = argument(value, args, "other")?;
    // Constants that Jinja2 computes at compile time are separate objects, even if equal. In
    // running code, CPython merges constants.
    let has_one_object = !interpreter.computes_constants() || is_kept_once(value);
    Ok(has_one_object && is_same(value, &other))
}

fn divisible(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    let rest = arithmetic::modulo(interpreter, value, &argument(value, args, "num")?)?;
    equal(&rest, &Value::from(0))
}

fn parity(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>, rest: i64) -> Fallible<bool> {
    args.check_none(value)?;
    let found = arithmetic::modulo(interpreter, value, &Value::from(2))?;
    equal(&found, &Value::from(rest))
}

fn is_integer(value: &Value) -> bool {
    matches!(py_value(value), PyValue::Int(_) | PyValue::Object(PyObject::BigInt(_)))
}

/// `self` passes the test `iterable` but cannot be iterated.
fn is_iterable_or_loop(value: &Value) -> bool {
    is_iterable(value) || matches!(py_object(value), Some(PyObject::Loop(_) | PyObject::Template(_)))
}

/// Returns true if the value has a length and items: Python checks for `__len__` and `__getitem__`.
fn is_sequence(value: &Value) -> bool {
    match py_object(value) {
        Some(PyObject::View(_)) => false,
        _ => length(value).is_some() || seq(value).is_some(),
    }
}

fn cased(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>, holds: fn(&str) -> bool) -> Fallible<bool> {
    args.check_none(value)?;
    budget::walk(value.as_str().map_or(0, str::len))?;
    Ok(holds(&taint::strip(&repr::to_str(interpreter, value)?)))
}

/// Returns true if the name is known; fails if the value cannot be a dict key.
fn named(value: &Value, args: &Args<'_>, known: impl Fn(&str) -> bool) -> Fallible<bool> {
    args.check_none(value)?;
    hash(value)?;
    Ok(value.as_str().is_some_and(|name| known(&taint::strip(name))))
}
