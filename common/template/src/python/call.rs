//! Calls: how arguments are passed, and what can be called.

use std::borrow::Cow;

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::super::globals;
use super::super::machine::Machine;
use super::super::marks;
use super::super::value::{
    CounterKind, Dict, Loop, Macro, MacroSpec, Obj, Py, Undefined, dict, is_undefined, iterate, py, tuple, type_name,
};
use super::{attribute, methods};

/// The arguments of a call.
#[derive(Debug)]
pub(crate) struct Args<'a> {
    pub(crate) positional: Cow<'a, [Value]>,
    pub(crate) keywords: Vec<(Value, Value)>,
}

impl<'a> Args<'a> {
    /// Positional arguments only.
    pub(crate) fn of(positional: &'a [Value]) -> Self {
        Self { positional: Cow::Borrowed(positional), keywords: Vec::new() }
    }

    /// Sorts the arguments by the names of parameters; all of them may be missing.
    pub(crate) fn bind<const N: usize>(&self, function: &str, names: [&str; N]) -> Fallible<[Option<Value>; N]> {
        if self.positional.len() > N {
            let given = self.positional.len();
            return Err(fail(format!("{function}() takes at most {N} arguments ({given} given)")));
        }
        let mut bound = std::array::from_fn(|at| self.positional.get(at).cloned());
        for (name, value) in &self.keywords {
            let at = names
                .iter()
                .position(|known| !known.is_empty() && name.as_str().is_some_and(|name| marks::same(name, known)));
            match at.map(|at| &mut bound[at]) {
                Some(slot @ None) => *slot = Some(value.clone()),
                Some(Some(_)) => return Err(fail(format!("{function}() got multiple values for argument '{name}'"))),
                None => return Err(fail(format!("{function}() got an unexpected keyword argument '{name}'"))),
            }
        }
        Ok(bound)
    }

    /// An error if there are keyword arguments.
    pub(crate) fn only_positional(&self, function: &str) -> Fallible<&[Value]> {
        if self.keywords.is_empty() {
            Ok(&self.positional)
        } else {
            Err(fail(format!("{function}() takes no keyword arguments")))
        }
    }

    /// The same arguments, borrowed.
    pub(crate) fn all(&self) -> Args<'_> {
        Args { positional: Cow::Borrowed(&self.positional), keywords: self.keywords.clone() }
    }

    /// The arguments without the first positional one.
    pub(crate) fn rest(&self) -> Args<'_> {
        Args {
            positional: Cow::Borrowed(self.positional.get(1..).unwrap_or_default()),
            keywords: self.keywords.clone(),
        }
    }

    /// The arguments with one more in front.
    pub(crate) fn after(&self, first: &Value) -> Args<'static> {
        let positional = std::iter::once(first.clone()).chain(self.positional.iter().cloned()).collect();
        Args { positional: Cow::Owned(positional), keywords: self.keywords.clone() }
    }
}

/// A required argument.
pub(crate) fn required(value: Option<Value>, function: &str, name: &str) -> Fallible<Value> {
    value.ok_or_else(|| fail(format!("{function}() missing required argument: '{name}'")))
}

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
        if keywords.iter().any(|(known, _)| known.as_str().is_some_and(|known| marks::same(known, text))) {
            return Err(fail(format!("got multiple values for keyword argument '{text}'")));
        }
        keywords.push((name.clone(), value.clone()));
    }
    Ok(())
}

/// `callee(args)`.
pub(crate) fn call(machine: &mut Machine, callee: &Value, args: &Args<'_>) -> Fallible<Value> {
    match py(callee) {
        Py::Undefined(undefined) => Err(undefined.error()),
        Py::Obj(Obj::Method(method)) => methods::call(machine, &method.receiver, method.name, args),
        Py::Obj(Obj::Macro(object)) => call_macro(machine, object, args),
        Py::Obj(Obj::Builtin(builtin)) => globals::call(machine, *builtin, args),
        Py::Obj(Obj::Block(block)) => {
            args.bind::<0>("block", [])?;
            call(machine, &block.function, args)
        }
        Py::Obj(Obj::Loop(object)) => recurse(machine, object, args),
        Py::Obj(Obj::Counter(counter)) if counter.kind == CounterKind::Joiner => {
            args.bind::<0>("joiner", [])?;
            Ok(counter.join())
        }
        _ => Err(fail(format!("'{}' object is not callable", type_name(callee)))),
    }
}

/// `callee(a, b, ...)`.
pub(crate) fn call_positional(machine: &mut Machine, callee: &Value, args: &[Value]) -> Fallible<Value> {
    call(machine, callee, &Args::of(args))
}

/// `receiver.name(args)`, without making a value of `receiver.name` if it is a method.
pub(crate) fn call_method(machine: &mut Machine, receiver: &Value, name: &Value, args: &Args<'_>) -> Fallible<Value> {
    if let Some(method) = name.as_str().and_then(|name| methods::find(receiver, name)) {
        return methods::call(machine, receiver, method, args);
    }
    let callee = attribute::attribute(machine, receiver, name)?;
    call(machine, &callee, args)
}

/// Whether a value can be called.
pub(crate) fn is_callable(value: &Value) -> bool {
    match py(value) {
        // Python's Undefined has a `__call__`, which fails.
        Py::Undefined(_) => true,
        Py::Obj(Obj::Counter(counter)) => counter.kind == CounterKind::Joiner,
        Py::Obj(Obj::Method(_) | Obj::Macro(_) | Obj::Builtin(_) | Obj::Loop(_) | Obj::Block(_)) => true,
        _ => false,
    }
}

/// `loop(items)`.
fn recurse(machine: &mut Machine, object: &Loop, args: &Args<'_>) -> Fallible<Value> {
    let [items] = args.bind("loop", ["iterable"])?;
    let items = required(items, "loop", "iterable")?;
    let Some(function) = &object.recurse else {
        return Err(fail("the loop must have the 'recursive' marker to be called recursively"));
    };
    call_positional(machine, function, &[items, Value::from(object.depth0 + 1)])
}

fn call_macro(machine: &mut Machine, object: &Macro, args: &Args<'_>) -> Fallible<Value> {
    let values = macro_args(object.spec(), args)?;
    machine.call(object, values)
}

/// What a macro's code takes: a value per parameter, then the special ones that the body uses.
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

/// What a parameter is that no argument was passed for.
fn not_given(spec: &MacroSpec, at: usize) -> Value {
    if at < spec.required {
        return Undefined::because(format!("parameter '{}' was not provided", spec.params[at]));
    }
    Obj::Missing.value()
}

fn has_param(spec: &MacroSpec, name: &str) -> bool {
    spec.params.iter().any(|param| param.as_str() == Some(name))
}

fn take(keywords: &mut Vec<(Value, Value)>, name: Option<&str>) -> Option<Value> {
    let at = keywords
        .iter()
        .position(|(known, _)| known.as_str().zip(name).is_some_and(|(known, name)| marks::same(known, name)))?;
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

/// A text argument; anything else is an error.
pub(crate) fn text_arg<'v>(value: &'v Value, function: &str) -> Fallible<&'v str> {
    match py(value) {
        Py::Str(text) => Ok(text),
        Py::Undefined(undefined) => Err(undefined.error()),
        _ => Err(fail(format!("{function}() argument must be str, not {}", type_name(value)))),
    }
}

/// An integer argument; `True` and `False` count.
pub(crate) fn int_arg(value: &Value) -> Fallible<i64> {
    match py(value) {
        Py::Bool(flag) => Ok(i64::from(flag)),
        Py::Int(int) => Ok(i64::try_from(int).unwrap_or(if int < 0 { i64::MIN } else { i64::MAX })),
        Py::Undefined(undefined) => Err(undefined.error()),
        _ => Err(fail(format!("'{}' object cannot be interpreted as an integer", type_name(value)))),
    }
}

/// An optional argument for which `None` and nothing are the same.
pub(crate) fn or_none(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !value.is_none())
}

/// An error if the value is undefined.
pub(crate) fn defined(value: &Value) -> Fallible<&Value> {
    match py(value) {
        Py::Undefined(undefined) => Err(undefined.error()),
        _ => {
            debug_assert!(!is_undefined(value), "py() sorts undefined values");
            Ok(value)
        }
    }
}
