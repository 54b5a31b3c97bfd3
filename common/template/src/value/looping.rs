//! The `loop` variable of a `for` block, which also drives the block's rounds.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::super::machine::Machine;
use super::super::python::call::call_positional;
use super::super::python::equal::equal_items;
use super::{Items, Obj, Seq, Undefined, length, nesting, nesting_above, obj, seq};

/// Python's `LoopContext`.
#[derive(Debug)]
pub(crate) struct Loop {
    iterable: Value,
    /// The `if` of the loop, as a function of an item.
    filter: Option<Value>,
    /// The loop itself as a macro, if it is recursive.
    pub(crate) recurse: Option<Value>,
    pub(crate) depth0: usize,
    nesting: AtomicU16,
    /// Rounds begun.
    index: AtomicUsize,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    items: Items,
    before: Option<Value>,
    current: Option<Value>,
    /// The next item, if somebody looked ahead; inside, nothing if there is none.
    after: Option<Option<Value>>,
    length: Option<usize>,
    last_changed: Option<Vec<Value>>,
}

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

    pub(super) fn nesting(&self) -> u16 {
        self.nesting.load(Ordering::Relaxed)
    }

    pub(super) fn truthy(&self) -> bool {
        match length(&self.iterable) {
            Some(len) if self.filter.is_none() => len > 0,
            _ => true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The items of a list or tuple all of which get a round: nothing but the index changes then.
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

    /// Begins the next round; gives its item.
    pub(crate) fn next(&self, machine: &mut Machine) -> Fallible<Option<Value>> {
        if self.filter.is_none() {
            return self.next_unfiltered();
        }
        let ahead = self.lock().after.take();
        let next = match ahead {
            Some(next) => next,
            None => self.pull(machine)?,
        };
        self.lock().remember(next.as_ref());
        Ok(self.begin_round(next))
    }

    /// The next item that passes the loop's `if`.
    fn pull(&self, machine: &mut Machine) -> Fallible<Option<Value>> {
        loop {
            let item = self.lock().items.next().transpose()?;
            let (Some(filter), Some(item)) = (&self.filter, &item) else {
                return Ok(item);
            };
            budget::steps(1)?;
            if call_positional(machine, filter, std::slice::from_ref(item))?.is_true() {
                return Ok(Some(item.clone()));
            }
        }
    }

    /// Whether this is the last round.
    fn is_last(&self, machine: &mut Machine) -> Fallible<bool> {
        // The length of a text is not known without counting, and that of a dict may change.
        let is_dict = matches!(obj(&self.iterable), Some(Obj::Dict(_) | Obj::View(_)));
        let countable = self.filter.is_none() && self.iterable.as_str().is_none() && !is_dict;
        match countable.then(|| length(&self.iterable)).flatten() {
            Some(len) => Ok(self.index() >= len),
            None => Ok(self.peek(machine)?.is_none()),
        }
    }

    fn peek(&self, machine: &mut Machine) -> Fallible<Option<Value>> {
        if let Some(items) = self.listed() {
            return Ok(items.get(self.index()).cloned());
        }
        let ahead = self.lock().after.clone();
        match ahead {
            Some(next) => Ok(next),
            None => {
                let next = self.pull(machine)?;
                self.lock().after = Some(next.clone());
                Ok(next)
            }
        }
    }

    /// The number of rounds; a generator is consumed to find out.
    pub(crate) fn length(&self, machine: &mut Machine) -> Fallible<usize> {
        if let Some(len) = self.lock().length {
            return Ok(len);
        }
        let len = match length(&self.iterable) {
            Some(len) if self.filter.is_none() => len,
            _ => self.count_rest(machine)?,
        };
        self.lock().length = Some(len);
        Ok(len)
    }

    fn count_rest(&self, machine: &mut Machine) -> Fallible<usize> {
        let mut rest = Vec::new();
        while let Some(item) = self.pull(machine)? {
            budget::alloc_values(1)?;
            rest.push(item);
        }
        let mut progress = self.lock();
        let ahead = usize::from(matches!(progress.after, Some(Some(_))));
        let len = rest.len() + self.index() + ahead;
        progress.items = Items::new(super::list(rest)?);
        Ok(len)
    }

    /// An attribute of the `loop` variable, if it has one of that name.
    pub(crate) fn attribute(&self, machine: &mut Machine, name: &str) -> Fallible<Option<Value>> {
        let index = || self.index() as i64;
        Ok(Some(match name {
            "last" => Value::from(self.is_last(machine)?),
            "length" => Value::from(self.length(machine)?),
            "revindex" => Value::from(self.length(machine)? as i64 - index() + 1),
            "revindex0" => Value::from(self.length(machine)? as i64 - index()),
            "nextitem" => self.peek(machine)?.unwrap_or_else(|| Undefined::because("there is no next item")),
            _ => return Ok(self.plain_attribute(name)),
        }))
    }

    /// An attribute that tells of this round and those before it.
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

    /// `loop.cycle(a, b, ...)`.
    pub(crate) fn cycle(&self, values: &[Value]) -> Fallible<Value> {
        let index0 = self.index().saturating_sub(1);
        match values.len() {
            0 => Err(fail("no items for cycling given")),
            len => Ok(values[index0 % len].clone()),
        }
    }

    /// `loop.changed(a, b, ...)`.
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

    pub(crate) fn index(&self) -> usize {
        self.index.load(Ordering::Relaxed)
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
