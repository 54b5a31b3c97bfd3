//! Filters that take tests or other filters: `map`, `select`, `reject` and their relatives.

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::super::machine::Machine;
use super::super::predicates;
use super::super::python::call::Args;
use super::super::value::{Generator, GeneratorKind, iterate};
use super::{Path, apply};

pub(super) fn map(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    Generator::value(GeneratorKind::Function("sync_do_map"), |out| {
        if !value.is_true() {
            return Ok(());
        }
        let mapping = Mapping::read(args)?;
        for item in iterate(value)? {
            budget::steps(1)?;
            let item = mapping.apply(machine, &item?)?;
            budget::alloc_values(1)?;
            out.push(item);
        }
        Ok(())
    })
}

/// What `map` does to each item.
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

    fn apply(&self, machine: &mut Machine, item: &Value) -> Fallible<Value> {
        match self {
            Self::Attribute(path, default) => path.get(machine, item, default.as_ref()),
            Self::Filter(name, args) => apply(machine, name, item, args),
        }
    }
}

pub(super) fn select(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    choose(machine, value, args, false, true)
}

pub(super) fn reject(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    choose(machine, value, args, false, false)
}

pub(super) fn selectattr(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    choose(machine, value, args, true, true)
}

pub(super) fn rejectattr(machine: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    choose(machine, value, args, true, false)
}

/// The items for which a test (of an attribute) gives `wanted`.
fn choose(machine: &mut Machine, value: &Value, args: &Args<'_>, by_attribute: bool, wanted: bool) -> Fallible<Value> {
    Generator::value(GeneratorKind::Function("select_or_reject"), |out| {
        if !value.is_true() {
            return Ok(());
        }
        let choice = Choice::read(args, by_attribute)?;
        for item in iterate(value)? {
            budget::steps(choice.cost())?;
            let item = item?;
            if choice.holds(machine, &item)? == wanted {
                budget::alloc_values(1)?;
                out.push(item);
            }
        }
        Ok(())
    })
}

/// How an item is judged.
struct Choice<'a> {
    path: Path,
    test: Option<(Value, Args<'a>)>,
}

impl<'a> Choice<'a> {
    /// Steps that judging one item takes.
    fn cost(&self) -> usize {
        if self.test.is_some() { 8 } else { 2 }
    }

    fn read(args: &'a Args<'_>, by_attribute: bool) -> Fallible<Self> {
        let (path, args) = match (by_attribute, args.positional.first()) {
            (true, Some(path)) => (Path::parse(path)?, args.rest()),
            (true, None) => return Err(fail("Missing parameter for attribute name")),
            (false, _) => (Path(Vec::new()), args.all()),
        };
        let test = args.positional.first().cloned().map(|name| {
            let positional = args.positional.get(1..).unwrap_or_default().to_vec();
            (name, Args { positional: positional.into(), keywords: args.keywords.clone() })
        });
        Ok(Self { path, test })
    }

    fn holds(&self, machine: &mut Machine, item: &Value) -> Fallible<bool> {
        let value = self.path.get(machine, item, None)?;
        match &self.test {
            Some((name, args)) => predicates::apply(machine, name, &value, args),
            None => Ok(value.is_true()),
        }
    }
}
