//! The state of a render besides the variables of its functions.

use std::mem::take;
use std::sync::Arc;

use minijinja::Value;

use super::locals::Locals;
use super::output::Output;
use crate::budget;
use crate::error::Fallible;
use crate::program::{Escaping, Function};
use crate::value::{ClosureCell, Macro, PyObject};

/// The state of a render besides the variables of its functions.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) output: Output,
    /// The values of the context, by place.
    pub(super) context: Arc<Vec<Value>>,
    /// True for each place of the context whose value was looked up.
    pub(super) is_read: Vec<bool>,
    /// All variables that functions share. Functions can hold each other in a circle through them,
    /// so they are unset at the end of the render.
    pub(super) shared: Vec<Arc<ClosureCell>>,
    /// Computes constants as Jinja2 does: a slice of a value that cannot be sliced is undefined.
    pub(super) computes_constants: bool,
    /// True inside an `{% autoescape %}` block that is on.
    pub(super) autoescapes: bool,
}

impl Drop for Machine {
    fn drop(&mut self) {
        for shared in take(&mut self.shared) {
            drop(shared.replace(Value::UNDEFINED));
        }
    }
}

impl Machine {
    pub(crate) fn new(context: Arc<Vec<Value>>) -> Self {
        let is_read = vec![false; context.len()];
        let output = Output::default();
        Self { output, context, is_read, shared: Vec::new(), computes_constants: false, autoescapes: false }
    }

    /// Returns a machine that computes constants at compile time.
    pub(crate) fn for_constants() -> Self {
        let mut machine = Self::new(Arc::default());
        machine.computes_constants = true;
        machine
    }

    /// Sets whether texts are escaped, and returns the setting before.
    pub(crate) fn autoescape(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.autoescapes, on)
    }

    pub(super) fn escapes(&self, escaping: Escaping) -> bool {
        escaping == Escaping::Always || self.autoescapes
    }

    pub(super) fn locals(&self, function: &Function, args: Vec<Value>, shared: &[Arc<ClosureCell>]) -> Locals {
        Locals::new(self.context.clone(), function, args, shared)
    }

    /// Creates a function that shares the variables around it.
    pub(super) fn function(&mut self, locals: &mut Locals, function: &Arc<Function>) -> Fallible<Value> {
        let mut shared = Vec::with_capacity(function.shared.len());
        for &(outer, _) in &function.shared {
            if let Some(place) = locals.given(outer) {
                self.is_read[place as usize] = true;
            }
            let (variable, is_new) = locals.share(outer);
            if is_new {
                budget::alloc_values(2)?;
                self.shared.push(variable.clone());
            }
            shared.push(variable);
        }
        Ok(PyObject::Macro(Macro { function: function.clone(), shared }).value())
    }
}
