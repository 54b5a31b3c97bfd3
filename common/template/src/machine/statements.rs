//! Runs statements.

use minijinja::Value;

use super::locals::Locals;
use super::state::Machine;
use crate::budget;
use crate::error::{Fallible, fail};
use crate::program::{Local, Node, NodeKind, Statement, Target};
use crate::value::{Namespace, PyObject, PyValue, dict, is_iterable, iterate, py_object, py_value, type_name};

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// At its end.
    Next,
    Break,
    Continue,
}

impl Machine {
    pub(super) fn run(&mut self, locals: &mut Locals, steps: &[Statement]) -> Fallible<Flow> {
        for step in steps {
            let flow = self.step(locals, step)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn step(&mut self, locals: &mut Locals, step: &Statement) -> Fallible<Flow> {
        match step {
            Statement::Text(text) => self.write_text(text)?,
            Statement::Print(node) => self.print(locals, node)?,
            Statement::PrintEscaped(node, escaping) => self.print_escaped(locals, node, *escaping)?,
            Statement::PrintText(node) => {
                let value = self.eval(locals, node)?;
                self.write_only_text(&value).map_err(|error| error.at(node.line))?;
            }
            Statement::If(branches, otherwise) => return self.condition(locals, branches, otherwise),
            Statement::Set(target, node) => {
                let value = self.eval(locals, node)?.into_owned();
                self.assign(locals, target, value, node.line)?;
            }
            Statement::CheckNamespace(node) => self.check_namespace(locals, node)?,
            Statement::Enter(starts) => self.enter(locals, starts)?,
            Statement::Define(local, function) => {
                let value = self.function(locals, function)?;
                locals.set(*local, value);
            }
            Statement::For(node) => return self.run_loop(locals, node),
            Statement::Capture(local, body) => return self.capture(locals, *local, body),
            Statement::Generation(body) => return self.generation(|machine| machine.run(locals, body)),
            Statement::Autoescape(enabled, body) => return self.autoescape_block(locals, enabled, body),
            Statement::Break => return Ok(Flow::Break),
            Statement::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn condition(
        &mut self,
        locals: &mut Locals,
        branches: &[(Node, Vec<Statement>)],
        otherwise: &[Statement],
    ) -> Fallible<Flow> {
        for (test, body) in branches {
            if self.truth(locals, test)? {
                return self.run(locals, body);
            }
        }
        self.run(locals, otherwise)
    }

    fn enter(&mut self, locals: &mut Locals, starts: &[(Local, Option<Node>)]) -> Fallible<()> {
        for (local, start) in starts {
            let Some(node) = start else {
                locals.set(*local, Value::UNDEFINED);
                continue;
            };
            // A value that the template replaces before it looks at it is not read.
            let given = match node.kind {
                NodeKind::Context(place) => Some(place),
                NodeKind::Variable(outer, _) => locals.given(outer),
                _ => None,
            };
            if given.is_some_and(|place| locals.set_given(*local, place)) {
                continue;
            }
            let value = self.eval(locals, node)?.into_owned();
            locals.set(*local, value);
        }
        Ok(())
    }

    fn capture(&mut self, locals: &mut Locals, local: Local, body: &[Statement]) -> Fallible<Flow> {
        let (flow, text) = self.captured(|machine| machine.run(locals, body))?;
        locals.set(local, text);
        Ok(flow)
    }

    /// As in Jinja2, a jump out of the block does not restore escaping.
    fn autoescape_block(&mut self, locals: &mut Locals, enabled: &Node, body: &[Statement]) -> Fallible<Flow> {
        let enabled = self.truth(locals, enabled)?;
        let before = self.autoescape(enabled);
        let flow = self.run(locals, body)?;
        if flow == Flow::Next {
            self.autoescape(before);
        }
        Ok(flow)
    }

    fn check_namespace(&mut self, locals: &Locals, node: &Node) -> Fallible<()> {
        let value = self.eval(locals, node)?;
        match py_object(&value) {
            Some(PyObject::Namespace(_)) => Ok(()),
            _ => Err(fail("cannot assign attribute on non-namespace object").at(node.line)),
        }
    }

    pub(super) fn assign(&mut self, locals: &mut Locals, target: &Target, value: Value, line: u32) -> Fallible<()> {
        match target {
            Target::Variable(local) => {
                locals.set(*local, value);
                Ok(())
            }
            Target::Unpack(targets) => {
                let items = unpack(&value, targets.len()).map_err(|error| error.at(line))?;
                targets.iter().zip(items).try_for_each(|(target, item)| self.assign(locals, target, item, line))
            }
            Target::Attribute(owner, name) => {
                let owner = self.eval(locals, owner)?;
                namespace(&owner).and_then(|it| it.set(name, value)).map_err(|error| error.at(line))
            }
            Target::Item(owner, name) => {
                let owner = self.eval(locals, owner)?;
                set_item(&owner, name, value).map_err(|error| error.at(line))
            }
        }
    }
}

/// Returns the items of a value; fails unless there are exactly `count`.
fn unpack(value: &Value, count: usize) -> Fallible<Vec<Value>> {
    budget::steps(2)?;
    if !is_iterable(value) {
        return Err(fail(format!("cannot unpack non-iterable {} object", type_name(value))));
    }
    let mut items = Vec::with_capacity(count);
    for item in iterate(value)? {
        if items.len() == count {
            return Err(fail(format!("too many values to unpack (expected {count})")));
        }
        items.push(item?);
    }
    if items.len() < count {
        return Err(fail(format!("not enough values to unpack (expected {count}, got {})", items.len())));
    }
    Ok(items)
}

/// Executes `owner[name] = value`.
fn set_item(owner: &Value, name: &Value, value: Value) -> Fallible<()> {
    match py_value(owner) {
        PyValue::Object(PyObject::Namespace(namespace)) => namespace.set(name, value),
        PyValue::Object(PyObject::Dict(dict)) => dict.set(name, value),
        _ => Err(fail(format!("'{}' object does not support item assignment", type_name(owner)))),
    }
}

/// Returns the namespace whose attribute is assigned.
fn namespace(value: &Value) -> Fallible<&Namespace> {
    match py_value(value) {
        PyValue::Object(PyObject::Namespace(namespace)) => Ok(namespace),
        _ if dict(value).is_some() => Err(fail("cannot assign an item of a dict, only attributes of a namespace")),
        _ => Err(fail("cannot assign attribute on non-namespace object")),
    }
}
