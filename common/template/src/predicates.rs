//! Jinja2's tests: what follows `is`.

use minijinja::Value;

use super::budget;
use super::error::{Fallible, fail};
use super::filters;
use super::machine::Machine;
use super::marks;
use super::program::{Check, Test};
use super::python::call::{self, Args};
use super::python::{arithmetic, equal, order, repr, text};
use super::value::{Obj, Py, is_iterable, is_undefined, length, obj, py, seq};

/// What a test does.
#[derive(Clone, Copy)]
pub(crate) enum Predicate {
    /// Looks at the value alone.
    Check(Check),
    /// Anything else.
    Test(Test),
}

use Predicate::{Check as Is, Test as By};

/// The tests by name, in order.
const TESTS: &[(&str, Predicate)] = &[
    ("!=", By(differs)),
    ("<", By(less)),
    ("<=", By(at_most)),
    ("==", By(equals)),
    (">", By(greater)),
    (">=", By(at_least)),
    ("boolean", Is(|value| matches!(py(value), Py::Bool(_)))),
    ("callable", Is(call::is_callable)),
    ("defined", Is(|value| !is_undefined(value))),
    ("divisibleby", By(divisible)),
    ("eq", By(equals)),
    ("equalto", By(equals)),
    ("escaped", Is(Value::is_safe)),
    ("even", By(|machine, value, args| parity(machine, value, args, 0))),
    ("false", Is(|value| matches!(py(value), Py::Bool(false)))),
    (
        "filter",
        By(|_, value, args| named(value, args, |name| filters::find(name).is_some() || filters::is_unsupported(name))),
    ),
    ("float", Is(|value| matches!(py(value), Py::Float(_)))),
    ("ge", By(at_least)),
    ("greaterthan", By(greater)),
    ("gt", By(greater)),
    ("in", By(contained)),
    ("integer", Is(is_integer)),
    ("iterable", Is(is_iterable_or_loop)),
    ("le", By(at_most)),
    ("lessthan", By(less)),
    ("lower", By(|machine, value, args| cased(machine, value, args, text::is_lower))),
    ("lt", By(less)),
    ("mapping", Is(|value| matches!(obj(value), Some(Obj::Dict(_))))),
    ("ne", By(differs)),
    ("none", Is(Value::is_none)),
    ("number", Is(|value| is_integer(value) || matches!(py(value), Py::Float(_) | Py::Bool(_)))),
    ("odd", By(|machine, value, args| parity(machine, value, args, 1))),
    ("sameas", By(same)),
    ("sequence", Is(is_sequence)),
    ("string", Is(|value| value.as_str().is_some())),
    ("test", By(|_, value, args| named(value, args, |name| find(name).is_some()))),
    ("true", Is(|value| matches!(py(value), Py::Bool(true)))),
    ("undefined", Is(is_undefined)),
    ("upper", By(|machine, value, args| cased(machine, value, args, text::is_upper))),
];

/// The test of that name.
pub(crate) fn find(name: &str) -> Option<Predicate> {
    let at = TESTS.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    Some(TESTS[at].1)
}

impl Predicate {
    /// Whether the value passes.
    pub(crate) fn holds(self, machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<bool> {
        match self {
            Self::Check(holds) => {
                alone(value, args)?;
                Ok(holds(value))
            }
            Self::Test(test) => test(machine, value, args),
        }
    }
}

/// Applies a test by its name.
pub(crate) fn apply(machine: &mut Machine, name: &Value, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    let Some(predicate) = name.as_str().and_then(|name| find(&marks::plain(name))) else {
        return Err(fail(format!("No test named '{name}'.")));
    };
    if !args.keywords.is_empty() {
        return Err(fail(format!("the test '{name}' takes no keyword arguments here")));
    }
    predicate.holds(machine, value, args)
}

/// An error if there are arguments.
pub(crate) fn alone(value: &Value, args: &Args<'_>) -> Fallible<()> {
    if args.positional.is_empty() && args.keywords.is_empty() {
        return Ok(());
    }
    args.after(value).bind("test", [""]).map(drop)
}

/// The one argument.
fn argument(value: &Value, args: &Args<'_>, name: &str) -> Fallible<Value> {
    let [_, other] = args.after(value).bind("test", ["", name])?;
    call::required(other, "test", name)
}

/// The other operand of an operator, which takes it by position only.
fn operand<'a>(args: &'a Args<'_>) -> Fallible<&'a Value> {
    match args.only_positional("operator")? {
        [right] => Ok(right),
        other => Err(fail(format!("expected 2 arguments, got {}", other.len() + 1))),
    }
}

fn equals(_: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    equal::equal(value, operand(args)?)
}

fn differs(_: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    Ok(!equal::equal(value, operand(args)?)?)
}

fn less(_: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    order::compare(value, operand(args)?, "<")
}

fn at_most(_: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    order::compare(value, operand(args)?, "<=")
}

fn greater(_: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    order::compare(value, operand(args)?, ">")
}

fn at_least(_: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    order::compare(value, operand(args)?, ">=")
}

fn contained(_: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    equal::contains(&argument(value, args, "seq")?, value)
}

fn same(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    budget::scan(value.as_str().map_or(0, str::len))?;
    let other = argument(value, args, "other")?;
    // What Jinja2 computes when it compiles are two objects, however alike; in running code, CPython merges constants.
    let has_one_object = !machine.computes_constants() || equal::is_kept_once(value);
    Ok(has_one_object && equal::is_same(value, &other))
}

fn divisible(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    let rest = arithmetic::modulo(machine, value, &argument(value, args, "num")?)?;
    equal::equal(&rest, &Value::from(0))
}

fn parity(machine: &mut Machine, value: &Value, args: &Args<'_>, rest: i64) -> Fallible<bool> {
    alone(value, args)?;
    let found = arithmetic::modulo(machine, value, &Value::from(2))?;
    equal::equal(&found, &Value::from(rest))
}

fn is_integer(value: &Value) -> bool {
    matches!(py(value), Py::Int(_) | Py::Obj(Obj::BigInt(_)))
}

/// `self` only looks as if it could be iterated.
fn is_iterable_or_loop(value: &Value) -> bool {
    is_iterable(value) || matches!(obj(value), Some(Obj::Loop(_) | Obj::Template(_)))
}

/// What has a length and items: Python looks for `__len__` and `__getitem__`.
fn is_sequence(value: &Value) -> bool {
    match obj(value) {
        Some(Obj::View(_)) => false,
        _ => length(value).is_some() || seq(value).is_some(),
    }
}

fn cased(machine: &mut Machine, value: &Value, args: &Args<'_>, holds: fn(&str) -> bool) -> Fallible<bool> {
    alone(value, args)?;
    budget::walk(value.as_str().map_or(0, str::len))?;
    Ok(holds(&marks::plain(&repr::to_str(machine, value)?)))
}

/// Whether a name is known; what cannot be a dict key is an error.
fn named(value: &Value, args: &Args<'_>, known: impl Fn(&str) -> bool) -> Fallible<bool> {
    alone(value, args)?;
    super::value::hash(value)?;
    Ok(value.as_str().is_some_and(|name| known(&marks::plain(name))))
}
