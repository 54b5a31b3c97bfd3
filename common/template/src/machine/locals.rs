//! The variables of a running function.

use std::borrow::Cow;
use std::sync::Arc;

use minijinja::Value;

use crate::program::{Function, Local};
use crate::value::ClosureCell;

/// The variables of a running function. An unset one is [`Value::UNDEFINED`].
#[derive(Debug, Default)]
pub(crate) struct Locals {
    context: Arc<Vec<Value>>,
    variables: Vec<Variable>,
}

#[derive(Debug)]
enum Variable {
    Own(Value),
    /// The value of this place of the context, until the variable is assigned.
    Given(Value, u32),
    /// Shared with other functions.
    Shared(Arc<ClosureCell>),
}

impl Locals {
    pub(super) fn new(
        context: Arc<Vec<Value>>,
        function: &Function,
        args: Vec<Value>,
        shared: &[Arc<ClosureCell>],
    ) -> Self {
        let mut variables = Vec::with_capacity(function.locals);
        variables.extend(args.into_iter().map(Variable::Own));
        variables.resize_with(function.locals, || Variable::Own(Value::UNDEFINED));
        for (&(_, own), shared) in function.shared.iter().zip(shared) {
            variables[own as usize] = Variable::Shared(shared.clone());
        }
        Self { context, variables }
    }

    pub(super) fn context(&self, place: u32) -> &Value {
        &self.context[place as usize]
    }

    pub(super) fn get(&self, local: Local) -> Cow<'_, Value> {
        match &self.variables[local as usize] {
            Variable::Own(value) | Variable::Given(value, _) => Cow::Borrowed(value),
            Variable::Shared(shared) => Cow::Owned(shared.get()),
        }
    }

    pub(super) fn set(&mut self, local: Local, value: Value) {
        match &mut self.variables[local as usize] {
            Variable::Own(own) => *own = value,
            given @ Variable::Given(..) => *given = Variable::Own(value),
            Variable::Shared(shared) => drop(shared.replace(value)),
        }
    }

    /// Returns the place of the context whose value the variable still has.
    pub(super) fn given(&self, local: Local) -> Option<u32> {
        match &self.variables[local as usize] {
            Variable::Given(_, place) => Some(*place),
            Variable::Own(_) | Variable::Shared(_) => None,
        }
    }

    /// Sets a variable to the value of a place of the context. False if other functions share it.
    pub(super) fn set_given(&mut self, local: Local, place: u32) -> bool {
        let value = self.context[place as usize].clone();
        match &mut self.variables[local as usize] {
            Variable::Shared(shared) => {
                drop(shared.replace(value));
                false
            }
            own => {
                *own = Variable::Given(value, place);
                true
            }
        }
    }

    /// Shares a variable with other functions; the flag is true if it was not shared before.
    pub(super) fn share(&mut self, local: Local) -> (Arc<ClosureCell>, bool) {
        let variable = &mut self.variables[local as usize];
        match variable {
            Variable::Shared(shared) => (shared.clone(), false),
            Variable::Own(value) | Variable::Given(value, _) => {
                let shared = Arc::new(ClosureCell::new(std::mem::take(value)));
                *variable = Variable::Shared(shared.clone());
                (shared, true)
            }
        }
    }
}
