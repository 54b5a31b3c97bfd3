//! The arguments of a call, and their assignment to parameters.

use std::borrow::Cow;

use minijinja::Value;

use crate::error::{Fallible, fail};
use crate::taint;

/// The arguments of a call.
#[derive(Debug)]
pub(crate) struct Args<'a> {
    pub(crate) positional: Cow<'a, [Value]>,
    pub(crate) keywords: Vec<(Value, Value)>,
}

impl<'a> Args<'a> {
    /// Creates arguments without keywords.
    pub(crate) fn of(positional: &'a [Value]) -> Self {
        Self { positional: Cow::Borrowed(positional), keywords: Vec::new() }
    }

    /// Assigns the arguments to parameters; every parameter may be missing.
    ///
    /// A parameter with an empty name is positional only.
    pub(crate) fn bind<const N: usize>(&self, function: &str, names: [&str; N]) -> Fallible<[Option<Value>; N]> {
        if self.positional.len() > N {
            let given = self.positional.len();
            return Err(fail(format!("{function}() takes at most {N} arguments ({given} given)")));
        }
        let mut bound = std::array::from_fn(|at| self.positional.get(at).cloned());
        for (name, value) in &self.keywords {
            let is_name =
                |known: &&str| !known.is_empty() && name.as_str().is_some_and(|name| taint::same(name, known));
            match names.iter().position(is_name).map(|at| &mut bound[at]) {
                Some(slot @ None) => *slot = Some(value.clone()),
                Some(Some(_)) => return Err(fail(format!("{function}() got multiple values for argument '{name}'"))),
                None => return Err(fail(format!("{function}() got an unexpected keyword argument '{name}'"))),
            }
        }
        Ok(bound)
    }

    /// Returns the positional arguments; fails if there are keyword arguments.
    pub(crate) fn only_positional(&self, function: &str) -> Fallible<&[Value]> {
        if self.keywords.is_empty() {
            Ok(&self.positional)
        } else {
            Err(fail(format!("{function}() takes no keyword arguments")))
        }
    }

    /// Fails if a test has arguments. The error's number of arguments includes the tested value.
    pub(crate) fn check_none(&self, operand: &Value) -> Fallible<()> {
        if self.positional.is_empty() && self.keywords.is_empty() {
            return Ok(());
        }
        self.after(operand).bind("test", [""]).map(drop)
    }

    /// Returns the same arguments, borrowed.
    pub(crate) fn all(&self) -> Args<'_> {
        Args { positional: Cow::Borrowed(&self.positional), keywords: self.keywords.clone() }
    }

    /// Returns the arguments without the first positional argument.
    pub(crate) fn rest(&self) -> Args<'_> {
        Args {
            positional: Cow::Borrowed(self.positional.get(1..).unwrap_or_default()),
            keywords: self.keywords.clone(),
        }
    }

    /// Returns the arguments with `first` before them.
    pub(crate) fn after(&self, first: &Value) -> Args<'static> {
        let positional = std::iter::once(first.clone()).chain(self.positional.iter().cloned()).collect();
        Args { positional: Cow::Owned(positional), keywords: self.keywords.clone() }
    }
}

/// Returns a required argument; fails if it is missing.
pub(crate) fn required(value: Option<Value>, function: &str, name: &str) -> Fallible<Value> {
    value.ok_or_else(|| fail(format!("{function}() missing required argument: '{name}'")))
}
