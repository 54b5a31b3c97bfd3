//! Runs `for` blocks.

use minijinja::Value;

use super::locals::Locals;
use super::state::Machine;
use super::statements::Flow;
use crate::budget;
use crate::error::{Fallible, fail};
use crate::program::{Filtering, For};
use crate::value::{Items, Loop, PyObject, is_iterable, py_object, type_name};

/// The source of the items.
#[derive(Debug)]
enum Rounds {
    Plain(Items),
    /// The `loop` object.
    Counted(Value),
}

impl Machine {
    pub(super) fn run_loop(&mut self, locals: &mut Locals, node: &For) -> Fallible<Flow> {
        let line = node.iter.line;
        let items = self.eval(locals, &node.iter)?.into_owned();
        let mut rounds = self.rounds(locals, node, items).map_err(|error| error.at(line))?;
        let mut ended_one = false;
        loop {
            let next = budget::steps(node.weight).and_then(|()| self.next_item(&mut rounds));
            let Some(item) = next.map_err(|error| error.at(line))? else {
                break;
            };
            if !self.passes_filter(locals, &node.filter, &item, line)? {
                continue;
            }
            self.assign(locals, &node.target, item, line)?;
            match self.run(locals, &node.body)? {
                Flow::Next => ended_one = true,
                Flow::Continue => {}
                Flow::Break => break,
            }
        }
        if ended_one { Ok(Flow::Next) } else { self.run(locals, &node.otherwise) }
    }

    fn rounds(&mut self, locals: &mut Locals, node: &For, items: Value) -> Fallible<Rounds> {
        if !is_iterable(&items) {
            return Err(fail(format!("'{}' object is not iterable", type_name(&items))));
        }
        let Some(counter) = node.counter else {
            return Ok(Rounds::Plain(Items::new(items)));
        };
        let filter = match &node.filter {
            Filtering::Function(function) => Some(self.function(locals, function)?),
            Filtering::None | Filtering::Test(..) => None,
        };
        let (recurse, depth) = match &node.recursion {
            Some(recursion) => {
                let function = self.eval(locals, &recursion.function)?.into_owned();
                (Some(function), locals.get(recursion.depth).as_usize().unwrap_or(0))
            }
            None => (None, 0),
        };
        let object = PyObject::Loop(Loop::new(&items, filter, recurse, depth)).value();
        locals.set(counter, object.clone());
        Ok(Rounds::Counted(object))
    }

    fn next_item(&mut self, rounds: &mut Rounds) -> Fallible<Option<Value>> {
        match rounds {
            Rounds::Plain(items) => items.next().transpose(),
            Rounds::Counted(object) => match py_object(object) {
                Some(PyObject::Loop(object)) => object.next(self),
                _ => Ok(None),
            },
        }
    }

    /// Returns true if the item passes the loop's `if`. A counted loop has tested it already.
    fn passes_filter(&mut self, locals: &mut Locals, filter: &Filtering, item: &Value, line: u32) -> Fallible<bool> {
        match filter {
            Filtering::Test(target, test) => {
                self.assign(locals, target, item.clone(), line)?;
                self.truth(locals, test)
            }
            Filtering::None | Filtering::Function(_) => Ok(true),
        }
    }
}
