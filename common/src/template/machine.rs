//! Runs programs on minijinja's machine: the environment with our operations, and the context that names are looked up in.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use minijinja::machinery::{eval, make_string_output};
use minijinja::value::{Object, ObjectRepr};
use minijinja::{AutoEscape, Environment, Output, State, Value};

use super::codegen::Program;
use super::error::{Fallible, fail};
use super::python::{arithmetic, attribute, call, equal, order, repr};
use super::scope::{Slot, slot_name, slot_of};
use super::tracking;
use super::value::{
    Dict, Loop, LoopDriver, Macro, Obj, Py, Undefined, dict, is_iterable, iterate, list, none, obj, py, tuple,
    type_name,
};
use super::{budget, filters, predicates};

/// An operation on values.
pub(crate) type Op = fn(&mut State<'_, '_>, &[Value]) -> Fallible<Value>;

/// The operations that code is made of, the frequent ones first. Filters and tests come on top, under their own names.
const OPS: &[(&str, Op)] = &[
    (".key", |state, values| attribute::key(state, &values[0], &values[1])),
    ("[]", |state, values| attribute::item(state, &values[0], &values[1])),
    ("+", |_, values| arithmetic::sum(values)),
    (".", |state, values| attribute::attribute(state, &values[0], &values[1])),
    ("call_method", |state, values| call::call_method(state, &values[0], &values[1], &call::Args::read(&values[2..])?)),
    ("rounds", |_, values| rounds(&values[0], weight(&values[1]))),
    ("in", |_, values| Ok(equal::contains(&values[1], &values[0])?.into())),
    ("==", |_, values| Ok(equal::equal(&values[0], &values[1])?.into())),
    ("loop", |_, values| make_loop(values)),
    ("counted_rounds", |_, values| Ok(Obj::Driver(LoopDriver::counted(&values[0], weight(&values[1]))).value())),
    ("[:]", |_, values| attribute::slice(&values[0], &values[1..4])),
    ("not_in", |_, values| Ok((!equal::contains(&values[1], &values[0])?).into())),
    ("!=", |_, values| Ok((!equal::equal(&values[0], &values[1])?).into())),
    ("~", |state, values| repr::concat(state, values)),
    ("-", |_, values| arithmetic::subtract(&values[0], &values[1])),
    ("*", |_, values| arithmetic::multiply(&values[0], &values[1])),
    ("/", |_, values| arithmetic::divide(&values[0], &values[1])),
    ("//", |_, values| arithmetic::floor_divide(&values[0], &values[1])),
    ("%", |state, values| arithmetic::modulo(state, &values[0], &values[1])),
    ("**", |_, values| arithmetic::power(&values[0], &values[1])),
    ("neg", |_, values| arithmetic::negate(&values[0])),
    ("pos", |_, values| arithmetic::plus(&values[0])),
    ("<", |_, values| Ok(order::compare(&values[0], &values[1], "<")?.into())),
    ("<=", |_, values| Ok(order::compare(&values[0], &values[1], "<=")?.into())),
    (">", |_, values| Ok(order::compare(&values[0], &values[1], ">")?.into())),
    (">=", |_, values| Ok(order::compare(&values[0], &values[1], ">=")?.into())),
    ("call", |state, values| call::call(state, &values[0], &call::Args::read(&values[1..])?)),
    ("list", |_, values| list(values.to_vec())),
    ("tuple", |_, values| tuple(values.to_vec())),
    ("dict", |_, values| Dict::value(values.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())),
    ("macro", |_, values| make_macro(&values[0], &values[1])),
    ("is_missing", |_, values| Ok(matches!(obj(&values[0]), Some(Obj::Missing)).into())),
    ("present", |_, values| Ok(present(&values[0]))),
    ("endless_rounds", |_, values| Ok(Obj::Driver(LoopDriver::endless(weight(&values[1]))).value())),
    ("next_round", |state, values| next_round(state, &values[0])),
    ("unpack", |_, values| unpack(&values[0], weight(&values[1]))),
    ("check_namespace", |_, values| check_namespace(&values[0])),
    ("expect_text", |_, values| expect_text(&values[0])),
    ("set_attribute", |_, values| set_attribute(values)),
    ("fail", |_, values| Err(fail(values.last().map(Value::to_string).unwrap_or_default()))),
    ("count_output", |state, values| tracking::count_output(state, &values[0])),
    ("generation", |_, values| Ok(tracking::generation(&values[0]))),
];

fn operations() -> impl Iterator<Item = &'static (&'static str, Op)> {
    OPS.iter().chain(predicates::OPS).chain(filters::OPS)
}

/// What the machine calls an operation: short names in the order of the list, because it looks them up in every render.
pub(crate) fn operation_name(name: &str) -> &'static str {
    operations().position(|(known, _)| *known == name).map_or("", |at| slot_name(at as Slot))
}

/// How deep minijinja may nest frames; our own limit on recursion is always hit first.
const FRAMES: usize = 100_000;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    environment.set_recursion_limit(FRAMES);
    environment.set_formatter(print);
    for (at, &(_, op)) in operations().enumerate() {
        environment.add_filter(slot_name(at as Slot), move |state: &mut State<'_, '_>, values: &[Value]| {
            budget::steps(1)?;
            op(state, values)
        });
    }
    environment
});

/// What a 64-bit integer takes at most in the output.
const MAX_INT_DIGITS: usize = 20;

/// Puts a value out as `str(value)`.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Fallible<()> {
    let written = match (value.as_str(), value.is_integer().then(|| value.as_i64()).flatten()) {
        (Some(text), _) => {
            budget::output(text.len())?;
            out.write_str(text)
        }
        (None, Some(int)) => {
            budget::output(MAX_INT_DIGITS)?;
            write!(out, "{int}")
        }
        (None, None) => {
            let text = repr::to_str(state, value)?;
            budget::output(text.len())?;
            out.write_str(&text)
        }
    };
    written.map_err(|_| fail("the output cannot be written"))
}

/// Runs a program; `value_of` gives the context.
pub(crate) fn run(program: &Arc<Program>, value_of: impl Fn(&str) -> Fallible<Option<Value>>) -> Fallible<String> {
    let mut values = vec![None; program.names.len()];
    for &slot in &program.context {
        values[slot as usize] = value_of(&program.names[slot as usize])?;
    }
    let root = Value::from_object(Context { program: program.clone(), values });
    let mut text = String::new();
    let mut output = make_string_output(&mut text);
    let blocks = BTreeMap::new();
    budget::with_stack(|| {
        eval(&ENVIRONMENT, &program.instructions, root, &blocks, &mut output, AutoEscape::None).map(drop)
    })?;
    drop(output);
    Ok(text)
}

/// What variables are looked up in that no code has set.
struct Context {
    program: Arc<Program>,
    /// By slot.
    values: Vec<Option<Value>>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

impl Context {
    fn get(&self, slot: Slot) -> Value {
        let value = self.values.get(slot as usize).cloned().flatten();
        value.unwrap_or_else(|| match self.program.names.get(slot as usize) {
            Some(name) => Undefined::Variable(Value::from(name.as_str())).value(),
            None => Value::UNDEFINED,
        })
    }
}

impl Object for Context {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        slot_of(key).map(|slot| self.get(slot))
    }
}

fn weight(value: &Value) -> usize {
    value.as_usize().unwrap_or(1)
}

fn make_macro(native: &Value, spec: &Value) -> Fallible<Value> {
    match obj(spec) {
        Some(Obj::MacroSpec(spec)) => Ok(Obj::Macro(Macro { native: native.clone(), spec: spec.clone() }).value()),
        _ => Err(fail("not a macro")),
    }
}

/// A parameter that was not passed is undefined to the defaults of others.
fn present(value: &Value) -> Value {
    match obj(value) {
        Some(Obj::Missing) => Undefined::because("a parameter has no value yet"),
        _ => value.clone(),
    }
}

/// Operands: items, filter or none, recursive function or none, depth.
fn make_loop(values: &[Value]) -> Fallible<Value> {
    iterate(&values[0])?;
    let given = |value: &Value| (!value.is_none()).then(|| value.clone());
    let object = Loop::new(&values[0], given(&values[1]), given(&values[2]), weight(&values[3]));
    Ok(Obj::Loop(object).value())
}

fn rounds(items: &Value, weight: usize) -> Fallible<Value> {
    if !is_iterable(items) {
        return Err(fail(format!("'{}' object is not iterable", type_name(items))));
    }
    Ok(Obj::Driver(LoopDriver::over(items, weight)).value())
}

fn next_round(state: &mut State<'_, '_>, object: &Value) -> Fallible<Value> {
    match obj(object) {
        Some(Obj::Loop(object)) => Ok(object.next(state)?.unwrap_or_else(|| Obj::Missing.value())),
        _ => Err(fail("not a loop")),
    }
}

/// The items of a value as a list of exactly `count`.
fn unpack(value: &Value, count: usize) -> Fallible<Value> {
    let mut items = Vec::with_capacity(count);
    let unpacking = if is_iterable(value) {
        iterate(value)?
    } else {
        return Err(fail(format!("cannot unpack non-iterable {} object", type_name(value))));
    };
    for item in unpacking {
        if items.len() == count {
            return Err(fail(format!("too many values to unpack (expected {count})")));
        }
        items.push(item?);
    }
    if items.len() < count {
        return Err(fail(format!("not enough values to unpack (expected {count}, got {})", items.len())));
    }
    list(items)
}

/// What call and filter blocks put out is not turned into text.
fn expect_text(value: &Value) -> Fallible<Value> {
    match value.as_str() {
        Some(_) => Ok(value.clone()),
        None => Err(fail(format!("expected str instance, {} found", type_name(value)))),
    }
}

fn check_namespace(value: &Value) -> Fallible<Value> {
    match obj(value) {
        Some(Obj::Namespace(_)) => Ok(none()),
        _ => Err(fail("cannot assign attribute on non-namespace object")),
    }
}

/// Operands: value, namespace, name.
fn set_attribute(values: &[Value]) -> Fallible<Value> {
    match py(&values[1]) {
        Py::Obj(Obj::Namespace(namespace)) => {
            namespace.set(&values[2], values[0].clone())?;
            Ok(none())
        }
        _ if dict(&values[1]).is_some() => Err(fail("cannot assign an item of a dict, only attributes of a namespace")),
        _ => Err(fail("cannot assign attribute on non-namespace object")),
    }
}
