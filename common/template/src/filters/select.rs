//! Filters that apply tests or other filters: `map`, `select`, `reject` and their variants.

use minijinja::Value;

use crate::arguments::Args;
use crate::error::{Fallible, fail};
use crate::filters::path::Path;
use crate::interpreter::Interpreter;
use crate::value::{Generator, GeneratorKind, iterate};
use crate::{budget, taint};

pub(super) fn map(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    Generator::value(GeneratorKind::Function("sync_do_map"), |out| {
        if !value.is_true() {
            return Ok(());
        }
        let mapping = Mapping::read(args)?;
        for item in iterate(value)? {
            budget::steps(1)?;
            let item = mapping.apply(interpreter, &item?)?;
            budget::alloc_values(1)?;
            out.push(item);
        }
        Ok(())
    })
}

/// The operation of `map` on each item.
enum Mapping<'a> {
    Attribute(Path, Option<Value>),
    Filter(&'a Value, Args<'a>),
}

impl<'a> Mapping<'a> {
    fn read(args: &'a Args<'_>) -> Fallible<Self> {
        if let Some(name) = args.positional.first() {
            return Ok(Self::Filter(name, args.rest()));
        }
        if !args.keywords.iter().any(|(name, _)| name.as_str() == Some("attribute")) {
            return Err(fail("map requires a filter argument"));
        }
        let [attribute, default] = args.bind("map", ["attribute", "default"])?;
        let default = default.filter(|default| !default.is_none());
        Ok(Self::Attribute(Path::parse(&attribute.unwrap_or_default())?, default))
    }

    fn apply(&self, interpreter: &mut dyn Interpreter, item: &Value) -> Fallible<Value> {
        match self {
            Self::Attribute(path, default) => path.get(interpreter, item, default.as_ref()),
            Self::Filter(name, args) => apply_filter(interpreter, name, item, args),
        }
    }
}

pub(super) fn select(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    choose(interpreter, value, args, false, true)
}

pub(super) fn reject(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    choose(interpreter, value, args, false, false)
}

pub(super) fn selectattr(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    choose(interpreter, value, args, true, true)
}

pub(super) fn rejectattr(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    choose(interpreter, value, args, true, false)
}

/// Returns the items for which a test results in `wanted`. The test is of the item or of one of its
/// attributes.
fn choose(
    interpreter: &mut dyn Interpreter,
    value: &Value,
    args: &Args<'_>,
    by_attribute: bool,
    wanted: bool,
) -> Fallible<Value> {
    Generator::value(GeneratorKind::Function("select_or_reject"), |out| {
        if !value.is_true() {
            return Ok(());
        }
        let choice = Choice::read(args, by_attribute)?;
        for item in iterate(value)? {
            budget::steps(choice.cost())?;
            let item = item?;
            if choice.holds(interpreter, &item)? == wanted {
                budget::alloc_values(1)?;
                out.push(item);
            }
        }
        Ok(())
    })
}

/// The test of an item.
struct Choice<'a> {
    path: Path,
    test: Option<(Value, Args<'a>)>,
}

impl<'a> Choice<'a> {
    /// Returns the cost, in steps of the budget, of one test.
    fn cost(&self) -> usize {
        if self.test.is_some() { 8 } else { 2 }
    }

    fn read(args: &'a Args<'_>, by_attribute: bool) -> Fallible<Self> {
        let (path, args) = match (by_attribute, args.positional.first()) {
            (true, Some(path)) => (Path::parse(path)?, args.rest()),
            (true, None) => return Err(fail("Missing parameter for attribute name")),
            (false, _) => (Path::empty(), args.all()),
        };
        let test = args.positional.first().cloned().map(|name| {
            let positional = args.positional.get(1..).unwrap_or_default().to_vec();
            (name, Args { positional: positional.into(), keywords: args.keywords.clone() })
        });
        Ok(Self { path, test })
    }

    fn holds(&self, interpreter: &mut dyn Interpreter, item: &Value) -> Fallible<bool> {
        let value = self.path.get(interpreter, item, None)?;
        match &self.test {
            Some((name, args)) => apply_test(interpreter, name, &value, args),
            None => Ok(value.is_true()),
        }
    }
}

/// Applies the filter of this name.
fn apply_filter(interpreter: &mut dyn Interpreter, name: &Value, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    match name.as_str().and_then(|name| interpreter.find_filter(&taint::strip(name))) {
        Some(filter) => (filter.run)(interpreter, value, args),
        None => Err(fail(format!("No filter named '{name}'."))),
    }
}

/// Applies the test of this name.
fn apply_test(interpreter: &mut dyn Interpreter, name: &Value, value: &Value, args: &Args<'_>) -> Fallible<bool> {
    let Some(predicate) = name.as_str().and_then(|name| interpreter.find_test(&taint::strip(name))) else {
        return Err(fail(format!("No test named '{name}'.")));
    };
    if !args.keywords.is_empty() {
        return Err(fail(format!("the test '{name}' takes no keyword arguments here")));
    }
    predicate.holds(interpreter, value, args)
}
