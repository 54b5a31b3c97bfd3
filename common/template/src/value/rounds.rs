//! The rounds of a loop: its items, and the attributes and methods of `loop`.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use minijinja::Value;
use parking_lot::{Mutex, MutexGuard};

use super::create::list;
use super::equal::equal_items;
use super::items::Items;
use super::looping::{Loop, Progress};
use super::object::{PyObject, length, nesting, nesting_above, py_object, seq};
use super::sequence::Seq;
use super::undefined::Undefined;
use crate::budget;
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;

impl Loop {
    pub(crate) fn new(iterable: &Value, filter: Option<Value>, recurse: Option<Value>, depth0: usize) -> Self {
        let progress = Progress {
            items: Items::new(iterable.clone()),
            before: None,
            current: None,
            after: None,
            length: None,
            last_changed: None,
        };
        let nesting = AtomicU16::new(nesting(iterable).saturating_add(1));
        let (index, progress) = (AtomicUsize::new(0), Mutex::new(progress));
        Self { iterable: iterable.clone(), filter, recurse, depth0, nesting, index, progress }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    /// Returns the items if the loop is over a list or tuple and has no `if`. Then only the index
    /// changes.
    fn listed(&self) -> Option<&[Value]> {
        if self.filter.is_none() { seq(&self.iterable).map(Seq::items) } else { None }
    }

    /// Begins the next round of a loop without `if`.
    fn next_unfiltered(&self) -> Fallible<Option<Value>> {
        if let Some(items) = self.listed() {
            return Ok(self.begin_round(items.get(self.index()).cloned()));
        }
        let mut progress = self.lock();
        let next = match progress.after.take() {
            Some(next) => next,
            None => progress.items.next().transpose()?,
        };
        progress.remember(next.as_ref());
        Ok(self.begin_round(next))
    }

    fn begin_round(&self, item: Option<Value>) -> Option<Value> {
        if item.is_some() {
            self.index.fetch_add(1, Ordering::Relaxed);
        }
        item
    }

    /// Begins the next round and returns its item.
    pub(crate) fn next(&self, interpreter: &mut dyn Interpreter) -> Fallible<Option<Value>> {
        if self.filter.is_none() {
            return self.next_unfiltered();
        }
        let ahead = self.lock().after.take();
        let next = match ahead {
            Some(next) => next,
            None => self.pull(interpreter)?,
        };
        self.lock().remember(next.as_ref());
        Ok(self.begin_round(next))
    }

    /// Returns the next item that passes the loop's `if`.
    fn pull(&self, interpreter: &mut dyn Interpreter) -> Fallible<Option<Value>> {
        loop {
            let item = self.lock().items.next().transpose()?;
            let (Some(filter), Some(item)) = (&self.filter, &item) else {
                return Ok(item);
            };
            budget::steps(1)?;
            if interpreter.call(filter, vec![item.clone()])?.is_true() {
                return Ok(Some(item.clone()));
            }
        }
    }

    /// Returns true in the last round.
    fn is_last(&self, interpreter: &mut dyn Interpreter) -> Fallible<bool> {
        // The length of a text must be counted, and the length of a dict may change.
        let is_dict = matches!(py_object(&self.iterable), Some(PyObject::Dict(_) | PyObject::View(_)));
        let countable = self.filter.is_none() && self.iterable.as_str().is_none() && !is_dict;
        match countable.then(|| length(&self.iterable)).flatten() {
            Some(len) => Ok(self.index() >= len),
            None => Ok(self.peek(interpreter)?.is_none()),
        }
    }

    fn peek(&self, interpreter: &mut dyn Interpreter) -> Fallible<Option<Value>> {
        if let Some(items) = self.listed() {
            return Ok(items.get(self.index()).cloned());
        }
        let ahead = self.lock().after.clone();
        match ahead {
            Some(next) => Ok(next),
            None => {
                let next = self.pull(interpreter)?;
                self.lock().after = Some(next.clone());
                Ok(next)
            }
        }
    }

    /// Returns the number of rounds. A generator is consumed to count them.
    pub(crate) fn length(&self, interpreter: &mut dyn Interpreter) -> Fallible<usize> {
        if let Some(len) = self.lock().length {
            return Ok(len);
        }
        let len = match length(&self.iterable) {
            Some(len) if self.filter.is_none() => len,
            _ => self.count_rest(interpreter)?,
        };
        self.lock().length = Some(len);
        Ok(len)
    }

    fn count_rest(&self, interpreter: &mut dyn Interpreter) -> Fallible<usize> {
        let mut rest = Vec::new();
        while let Some(item) = self.pull(interpreter)? {
            budget::alloc_values(1)?;
            rest.push(item);
        }
        let mut progress = self.lock();
        let ahead = usize::from(matches!(progress.after, Some(Some(_))));
        let len = rest.len() + self.index() + ahead;
        progress.items = Items::new(list(rest)?);
        Ok(len)
    }

    /// Returns an attribute of the `loop` variable.
    pub(crate) fn attribute(&self, interpreter: &mut dyn Interpreter, name: &str) -> Fallible<Option<Value>> {
        let index = || self.index() as i64;
        Ok(Some(match name {
            "last" => Value::from(self.is_last(interpreter)?),
            "length" => Value::from(self.length(interpreter)?),
            "revindex" => Value::from(self.length(interpreter)? as i64 - index() + 1),
            "revindex0" => Value::from(self.length(interpreter)? as i64 - index()),
            "nextitem" => self.peek(interpreter)?.unwrap_or_else(|| Undefined::because("there is no next item")),
            _ => return Ok(self.plain_attribute(name)),
        }))
    }

    /// Returns an attribute that depends only on this round and earlier rounds.
    fn plain_attribute(&self, name: &str) -> Option<Value> {
        Some(match name {
            "first" => Value::from(self.index() == 1),
            "index0" => Value::from(self.index() as i64 - 1),
            "index" => Value::from(self.index()),
            "depth" => Value::from(self.depth0 + 1),
            "depth0" => Value::from(self.depth0),
            "previtem" => self.previous().unwrap_or_else(|| Undefined::because("there is no previous item")),
            _ => return None,
        })
    }

    /// Returns the result of `loop.cycle(a, b, ...)`.
    pub(crate) fn cycle(&self, values: &[Value]) -> Fallible<Value> {
        let index0 = self.index().saturating_sub(1);
        match values.len() {
            0 => Err(fail("no items for cycling given")),
            len => Ok(values[index0 % len].clone()),
        }
    }

    /// Returns the result of `loop.changed(a, b, ...)`.
    pub(crate) fn changed(&self, values: &[Value]) -> Fallible<bool> {
        let last = self.lock().last_changed.clone();
        if let Some(last) = last
            && equal_items(&last, values)?
        {
            return Ok(false);
        }
        self.nesting.fetch_max(nesting_above(values)?, Ordering::Relaxed);
        self.lock().last_changed = Some(values.to_vec());
        Ok(true)
    }

    fn previous(&self) -> Option<Value> {
        match self.listed() {
            Some(items) => items.get(self.index().checked_sub(2)?).cloned(),
            None => self.lock().before.clone(),
        }
    }
}

impl Progress {
    fn remember(&mut self, item: Option<&Value>) {
        if let Some(item) = item {
            self.before = self.current.replace(item.clone());
        }
    }
}
