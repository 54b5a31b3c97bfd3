//! Runs programs: executes their steps and evaluates their nodes. The variables of each running
//! function are in a [`Locals`].
//!
//! While an expression is evaluated, no variable in it changes, because a macro assigns only its
//! own variables. Variables, constants and items of dicts are therefore borrowed, not copied.

mod expressions;
mod locals;
mod loops;
mod output;
mod print;
mod state;
mod statements;

use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use minijinja::Value;

use crate::error::{Fallible, fail};
use crate::interpreter::{FilterRow, Interpreter, Predicate};
use crate::program::Program;
use crate::value::{Macro, PyObject, py_object, safe_text, type_name};
use crate::{budget, filters, predicates};

pub(crate) use locals::Locals;
pub(crate) use state::Machine;

/// The output of a program.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) text: String,
    /// The byte ranges of its `{% generation %}` blocks.
    pub(crate) generation_spans: Vec<Range<usize>>,
    /// The names that were looked up in the context.
    pub(crate) read: Vec<String>,
}

/// Runs a program with the context from `value_of`.
pub(crate) fn run(program: &Program, value_of: impl Fn(&str) -> Fallible<Option<Value>>) -> Fallible<Run> {
    let mut context = Vec::with_capacity(program.context.len());
    for used in &program.context {
        context.push(value_of(&used.name)?.unwrap_or_else(|| used.default.clone()));
    }
    let mut machine = Machine::new(Arc::new(context));
    let mut locals = machine.locals(&program.main, Vec::new(), &[]);
    budget::with_stack(|| machine.run(&mut locals, &program.main.body))?;
    let (text, generation_spans) = take(&mut machine.output).finish();
    let names = program.context.iter().map(|used| used.name.to_string());
    let read = names.zip(&machine.is_read).filter(|(_, is_read)| **is_read).map(|(name, _)| name).collect();
    Ok(Run { text, generation_spans, read })
}

impl Interpreter for Machine {
    fn call(&mut self, callee: &Value, args: Vec<Value>) -> Fallible<Value> {
        match py_object(callee) {
            Some(PyObject::Macro(called)) => self.call_macro(called, args),
            _ => Err(fail(format!("'{}' object is not callable", type_name(callee)))),
        }
    }

    fn computes_constants(&self) -> bool {
        self.computes_constants
    }

    fn autoescapes(&self) -> bool {
        self.autoescapes
    }

    fn find_filter(&self, name: &str) -> Option<&'static FilterRow> {
        filters::find(name)
    }

    fn find_test(&self, name: &str) -> Option<Predicate> {
        predicates::find(name)
    }
}

impl Machine {
    fn call_macro(&mut self, called: &Macro, args: Vec<Value>) -> Fallible<Value> {
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
