//! Jinja2's tests: what follows `is`.

use minijinja::{State, Value};

use super::error::{Fallible, fail};
use super::filters;
use super::machine::Op;
use super::python::call::{self, Args};
use super::python::{arithmetic, equal, order, repr, text};
use super::value::{Obj, Py, is_iterable, is_undefined, length, obj, py, seq};

/// The tests, each under its name with "is:" in front.
pub(crate) const OPS: &[(&str, Op)] = &[
    ("is:boolean", |_, values| simple(values, |value| matches!(py(value), Py::Bool(_)))),
    ("is:callable", |_, values| simple(values, call::is_callable)),
    ("is:defined", |_, values| simple(values, |value| !is_undefined(value))),
    ("is:divisibleby", |state, values| {
        let [left, right] = two(values, "num")?;
        let rest = arithmetic::modulo(state, &left, &right)?;
        Ok(equal::equal(&rest, &Value::from(0))?.into())
    }),
    ("is:==", equals),
    ("is:eq", equals),
    ("is:equalto", equals),
    ("is:escaped", |_, values| simple(values, Value::is_safe)),
    ("is:even", |state, values| parity(state, values, 0)),
    ("is:odd", |state, values| parity(state, values, 1)),
    ("is:false", |_, values| simple(values, |value| matches!(py(value), Py::Bool(false)))),
    ("is:true", |_, values| simple(values, |value| matches!(py(value), Py::Bool(true)))),
    ("is:filter", |_, values| named(values, |name| filters::op_name(name).is_some() || filters::is_unsupported(name))),
    ("is:test", |_, values| named(values, |name| op_name(name).is_some())),
    ("is:float", |_, values| simple(values, |value| matches!(py(value), Py::Float(_)))),
    ("is:integer", |_, values| simple(values, is_integer)),
    ("is:number", |_, values| {
        simple(values, |value| is_integer(value) || matches!(py(value), Py::Float(_) | Py::Bool(_)))
    }),
    ("is:ge", |_, values| ordered(values, ">=")),
    ("is:>=", |_, values| ordered(values, ">=")),
    ("is:gt", |_, values| ordered(values, ">")),
    ("is:>", |_, values| ordered(values, ">")),
    ("is:greaterthan", |_, values| ordered(values, ">")),
    ("is:le", |_, values| ordered(values, "<=")),
    ("is:<=", |_, values| ordered(values, "<=")),
    ("is:lt", |_, values| ordered(values, "<")),
    ("is:<", |_, values| ordered(values, "<")),
    ("is:lessthan", |_, values| ordered(values, "<")),
    ("is:in", |_, values| {
        let [item, container] = two(values, "seq")?;
        Ok(equal::contains(&container, &item)?.into())
    }),
    ("is:iterable", |_, values| simple(values, is_iterable_or_loop)),
    ("is:lower", |state, values| cased(state, values, text::is_lower)),
    ("is:upper", |state, values| cased(state, values, text::is_upper)),
    ("is:mapping", |_, values| simple(values, |value| matches!(obj(value), Some(Obj::Dict(_))))),
    ("is:!=", differs),
    ("is:ne", differs),
    ("is:none", |_, values| simple(values, Value::is_none)),
    ("is:sameas", |_, values| {
        let [left, right] = two(values, "other")?;
        Ok(equal::is_same(&left, &right).into())
    }),
    ("is:sequence", |_, values| simple(values, is_sequence)),
    ("is:string", |_, values| simple(values, |value| value.as_str().is_some())),
    ("is:undefined", |_, values| simple(values, is_undefined)),
];

/// The operation of a test.
pub(crate) fn op_name(name: &str) -> Option<&'static str> {
    OPS.iter().map(|(op, _)| *op).find(|op| &op[3..] == name)
}

/// Applies a test by its name.
pub(crate) fn apply(state: &mut State<'_, '_>, name: &Value, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    let op = name.as_str().and_then(|name| OPS.iter().find(|(op, _)| &op[3..] == name));
    let Some((_, op)) = op else {
        return Err(fail(format!("No test named '{name}'.")));
    };
    let args = args.after(value);
    if !args.keywords.is_empty() {
        return Err(fail(format!("the test '{name}' takes no keyword arguments here")));
    }
    Ok(op(state, &args.positional)?.is_true())
}

fn simple(values: &[Value], holds: impl Fn(&Value) -> bool) -> Fallible<Value> {
    if let [value] = values {
        return Ok(holds(value).into());
    }
    let [value] = Args::read(values)?.bind("test", [""])?;
    Ok(holds(&value.unwrap_or_default()).into())
}

fn two(values: &[Value], name: &str) -> Fallible<[Value; 2]> {
    let [value, other] = Args::read(values)?.bind("test", ["", name])?;
    Ok([value.unwrap_or_default(), call::required(other, "test", name)?])
}

/// Operators take their operands by position only.
fn operands(values: &[Value]) -> Fallible<[Value; 2]> {
    let args = Args::read(values)?;
    match args.only_positional("operator")? {
        [left, right] => Ok([left.clone(), right.clone()]),
        other => Err(fail(format!("expected 2 arguments, got {}", other.len()))),
    }
}

fn equals(_: &mut State<'_, '_>, values: &[Value]) -> Fallible<Value> {
    let [left, right] = operands(values)?;
    Ok(equal::equal(&left, &right)?.into())
}

fn differs(_: &mut State<'_, '_>, values: &[Value]) -> Fallible<Value> {
    let [left, right] = operands(values)?;
    Ok((!equal::equal(&left, &right)?).into())
}

fn ordered(values: &[Value], op: &str) -> Fallible<Value> {
    let [left, right] = operands(values)?;
    Ok(order::compare(&left, &right, op)?.into())
}

fn parity(state: &mut State<'_, '_>, values: &[Value], rest: i64) -> Fallible<Value> {
    let [value] = Args::read(values)?.bind("test", [""])?;
    let found = arithmetic::modulo(state, &value.unwrap_or_default(), &Value::from(2))?;
    Ok(equal::equal(&found, &Value::from(rest))?.into())
}

fn is_integer(value: &Value) -> bool {
    matches!(py(value), Py::Int(_) | Py::Obj(Obj::BigInt(_)))
}

fn is_iterable_or_loop(value: &Value) -> bool {
    is_iterable(value) || matches!(obj(value), Some(Obj::Loop(_)))
}

/// What has a length and items: Python looks for `__len__` and `__getitem__`.
fn is_sequence(value: &Value) -> bool {
    match obj(value) {
        Some(Obj::View(_)) => false,
        _ => length(value).is_some() || seq(value).is_some(),
    }
}

fn cased(state: &mut State<'_, '_>, values: &[Value], holds: fn(&str) -> bool) -> Fallible<Value> {
    let [value] = Args::read(values)?.bind("test", [""])?;
    Ok(holds(&repr::to_str(state, &value.unwrap_or_default())?).into())
}

/// Whether a name is known; what cannot be a dict key is an error.
fn named(values: &[Value], known: impl Fn(&str) -> bool) -> Fallible<Value> {
    let [value] = Args::read(values)?.bind("test", [""])?;
    let value = value.unwrap_or_default();
    super::value::hash(&value)?;
    Ok(value.as_str().is_some_and(known).into())
}
