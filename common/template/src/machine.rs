//! Runs programs: walks their steps and nodes, with the variables of each running function in a [`Locals`].
//!
//! While an expression is evaluated, no variable that it can see changes: macros assign only their own. So variables,
//! constants and what dicts hold are borrowed, not copied.

mod expressions;
mod locals;
mod loops;
mod output;
mod statements;

use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use minijinja::Value;

use super::budget;
use super::error::Fallible;
use super::program::{Escaping, Function, Program};
use super::value::{Macro, Obj, Shared, safe_text};

pub(crate) use locals::Locals;
use output::Output;

/// What a render has besides the variables of its functions.
#[derive(Debug)]
pub(crate) struct Machine {
    output: Output,
    /// What is looked up outside of the template, by place.
    context: Arc<Vec<Value>>,
    /// Every variable that functions share: functions can hold each other in a circle through them, so they are emptied
    /// when the render ends.
    shared: Vec<Arc<Shared>>,
    /// As Jinja2 computes constants: what cannot be sliced gives undefined.
    computes_constants: bool,
    /// Inside of an `{% autoescape %}` block that is on.
    autoescapes: bool,
}

impl Drop for Machine {
    fn drop(&mut self) {
        for shared in take(&mut self.shared) {
            drop(shared.replace(Value::UNDEFINED));
        }
    }
}

/// Runs a program; `value_of` gives the context. Gives the text and the bytes of its `{% generation %}` blocks.
pub(crate) fn run(
    program: &Program,
    value_of: impl Fn(&str) -> Fallible<Option<Value>>,
) -> Fallible<(String, Vec<Range<usize>>)> {
    let mut context = Vec::with_capacity(program.context.len());
    for used in &program.context {
        context.push(value_of(&used.name)?.unwrap_or_else(|| used.default.clone()));
    }
    let mut machine = Machine::new(Arc::new(context));
    let mut locals = machine.locals(&program.main, Vec::new(), &[]);
    budget::with_stack(|| machine.run(&mut locals, &program.main.body))?;
    Ok(take(&mut machine.output).finish())
}

impl Machine {
    pub(crate) fn new(context: Arc<Vec<Value>>) -> Self {
        Self { output: Output::default(), context, shared: Vec::new(), computes_constants: false, autoescapes: false }
    }

    /// A machine for what is computed when a template is compiled.
    pub(crate) fn for_constants() -> Self {
        let mut machine = Self::new(Arc::default());
        machine.computes_constants = true;
        machine
    }

    pub(crate) fn computes_constants(&self) -> bool {
        self.computes_constants
    }

    pub(crate) fn autoescapes(&self) -> bool {
        self.autoescapes
    }

    /// Sets whether texts are escaped, and gives what was before.
    pub(crate) fn autoescape(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.autoescapes, on)
    }

    fn escapes(&self, escaping: Escaping) -> bool {
        escaping == Escaping::Always || self.autoescapes
    }

    fn locals(&self, function: &Function, args: Vec<Value>, shared: &[Arc<Shared>]) -> Locals {
        Locals::new(self.context.clone(), function, args, shared)
    }

    /// A function, sharing the variables around it.
    fn function(&mut self, locals: &mut Locals, function: &Arc<Function>) -> Fallible<Value> {
        let mut shared = Vec::with_capacity(function.shared.len());
        for &(outer, _) in &function.shared {
            let (variable, is_new) = locals.share(outer);
            if is_new {
                budget::alloc_values(2)?;
                self.shared.push(variable.clone());
            }
            shared.push(variable);
        }
        Ok(Obj::Macro(Macro { function: function.clone(), shared }).value())
    }

    /// Calls a function with a value for each of its parameters.
    pub(crate) fn call(&mut self, called: &Macro, args: Vec<Value>) -> Fallible<Value> {
        let function = &*called.function;
        budget::steps(function.spec.weight)?;
        let mut locals = self.locals(function, args, &called.shared);
        budget::recurse(|| match &function.result {
            Some(result) => {
                self.run(&mut locals, &function.body)?;
                Ok(Value::from(self.truth(&locals, result)?))
            }
            None => {
                let is_safe = function.safe.is_some_and(|safe| self.escapes(safe));
                let (_, text) = self.captured(|machine| machine.run(&mut locals, &function.body))?;
                if is_safe {
                    return safe_text(text.as_str().unwrap_or_default().to_owned());
                }
                budget::alloc(text.as_str().map_or(0, str::len))?;
                budget::track(&text);
                Ok(text)
            }
        })
    }
}
