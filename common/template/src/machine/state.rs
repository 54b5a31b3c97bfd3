//! The state of a render besides the variables of its functions.

use std::mem::take;
use std::sync::Arc;

use minijinja::Value;

use super::locals::Locals;
use super::output::Output;
use crate::budget;
use crate::error::Fallible;
use crate::program::{Escaping, Function};
use crate::value::{Macro, PyObject, Shared};

/// What a render has besides the variables of its functions.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) output: Output,
    /// What is looked up outside of the template, by place.
    pub(super) context: Arc<Vec<Value>>,
    /// Every variable that functions share: functions can hold each other in a circle through them, so they are emptied
    /// when the render ends.
    pub(super) shared: Vec<Arc<Shared>>,
    /// As Jinja2 computes constants: what cannot be sliced gives undefined.
    pub(super) computes_constants: bool,
    /// Inside of an `{% autoescape %}` block that is on.
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
        Self { output: Output::default(), context, shared: Vec::new(), computes_constants: false, autoescapes: false }
    }

    /// A machine for what is computed when a template is compiled.
    pub(crate) fn for_constants() -> Self {
        let mut machine = Self::new(Arc::default());
        machine.computes_constants = true;
        machine
    }

    /// Sets whether texts are escaped, and gives what was before.
    pub(crate) fn autoescape(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.autoescapes, on)
    }

    pub(super) fn escapes(&self, escaping: Escaping) -> bool {
        escaping == Escaping::Always || self.autoescapes
    }

    pub(super) fn locals(&self, function: &Function, args: Vec<Value>, shared: &[Arc<Shared>]) -> Locals {
        Locals::new(self.context.clone(), function, args, shared)
    }

    /// A function, sharing the variables around it.
    pub(super) fn function(&mut self, locals: &mut Locals, function: &Arc<Function>) -> Fallible<Value> {
        let mut shared = Vec::with_capacity(function.shared.len());
        for &(outer, _) in &function.shared {
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
