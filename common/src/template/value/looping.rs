//! The `loop` variable of a `for` block, and what drives the block's rounds.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use minijinja::{State, Value};

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::super::python::call::call_positional;
use super::super::python::equal::equal_items;
use super::{Items, Obj, Undefined, length, nesting, nesting_above, none};

/// What minijinja's loop instruction iterates over. It charges every round what the body costs.
#[derive(Debug)]
pub(crate) struct LoopDriver {
    rounds: Rounds,
    /// Steps per round.
    weight: usize,
}

#[derive(Debug)]
enum Rounds {
    /// One round per item of a value.
    Items(Value),
    /// One round per item, counted by the `loop` variable.
    Counted(Value),
    /// Rounds without items, until the body leaves the loop.
    Endless,
}

impl LoopDriver {
    pub(crate) fn over(value: &Value, weight: usize) -> Self {
        Self { rounds: Rounds::Items(value.clone()), weight }
    }

    pub(crate) fn counted(object: &Value, weight: usize) -> Self {
        Self { rounds: Rounds::Counted(object.clone()), weight }
    }

    pub(crate) fn endless(weight: usize) -> Self {
        Self { rounds: Rounds::Endless, weight }
    }

    pub(super) fn start(&self) -> impl Iterator<Item = Value> + Send + Sync + use<> {
        let weight = self.weight;
        let mut next = self.source();
        std::iter::from_fn(move || match budget::steps(weight) {
            Ok(()) => next().map(|item| item.unwrap_or_else(Value::from)),
            Err(error) => Some(Value::from(error)),
        })
    }

    fn source(&self) -> Box<dyn FnMut() -> Option<Fallible<Value>> + Send + Sync> {
        match &self.rounds {
            Rounds::Items(value) => {
                let mut items = Items::new(value.clone());
                Box::new(move || items.next())
            }
            Rounds::Counted(object) => {
                let object = object.clone();
                Box::new(move || counted(&object)?.next_unfiltered().transpose())
            }
            Rounds::Endless => Box::new(|| Some(Ok(none()))),
        }
    }
}

fn counted(object: &Value) -> Option<&Loop> {
    match super::obj(object)? {
        Obj::Loop(object) => Some(object),
        _ => None,
    }
}

/// Python's `LoopContext`.
#[derive(Debug)]
pub(crate) struct Loop {
    iterable: Value,
    /// The `if` of the loop, as a macro that prints something for an item that passes.
    filter: Option<Value>,
    /// The loop itself as a macro, if it is recursive.
    pub(crate) recurse: Option<Value>,
    pub(crate) depth0: usize,
    nesting: AtomicU16,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    items: Items,
    /// Rounds begun.
    index: usize,
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
            index: 0,
            before: None,
            current: None,
            after: None,
            length: None,
            last_changed: None,
        };
        let nesting = AtomicU16::new(nesting(iterable).saturating_add(1));
        Self { iterable: iterable.clone(), filter, recurse, depth0, nesting, progress: Mutex::new(progress) }
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

    /// Begins the next round of a loop without `if`.
    fn next_unfiltered(&self) -> Fallible<Option<Value>> {
        let mut progress = self.lock();
        let next = match progress.after.take() {
            Some(next) => next,
            None => progress.items.next().transpose()?,
        };
        Ok(progress.begin_round(next))
    }

    /// Begins the next round.
    pub(crate) fn next(&self, state: &mut State<'_, '_>) -> Fallible<Option<Value>> {
        let ahead = self.lock().after.take();
        let next = match ahead {
            Some(next) => next,
            None => self.pull(state)?,
        };
        Ok(self.lock().begin_round(next))
    }

    /// The next item that passes the loop's `if`.
    fn pull(&self, state: &mut State<'_, '_>) -> Fallible<Option<Value>> {
        loop {
            let item = self.lock().items.next().transpose()?;
            let (Some(filter), Some(item)) = (&self.filter, &item) else {
                return Ok(item);
            };
            budget::steps(1)?;
            if call_positional(state, filter, std::slice::from_ref(item))?.is_true() {
                return Ok(Some(item.clone()));
            }
        }
    }

    fn peek(&self, state: &mut State<'_, '_>) -> Fallible<Option<Value>> {
        let ahead = self.lock().after.clone();
        match ahead {
            Some(next) => Ok(next),
            None => {
                let next = self.pull(state)?;
                self.lock().after = Some(next.clone());
                Ok(next)
            }
        }
    }

    /// The number of rounds; a generator is consumed to find out.
    pub(crate) fn length(&self, state: &mut State<'_, '_>) -> Fallible<usize> {
        if let Some(len) = self.lock().length {
            return Ok(len);
        }
        let len = match length(&self.iterable) {
            Some(len) if self.filter.is_none() => len,
            _ => self.count_rest(state)?,
        };
        self.lock().length = Some(len);
        Ok(len)
    }

    fn count_rest(&self, state: &mut State<'_, '_>) -> Fallible<usize> {
        let mut rest = Vec::new();
        while let Some(item) = self.pull(state)? {
            budget::alloc_values(1)?;
            rest.push(item);
        }
        let mut progress = self.lock();
        let ahead = usize::from(matches!(progress.after, Some(Some(_))));
        let len = rest.len() + progress.index + ahead;
        progress.items = Items::new(super::list(rest)?);
        Ok(len)
    }

    /// An attribute of the `loop` variable, if it has one of that name.
    pub(crate) fn attribute(&self, state: &mut State<'_, '_>, name: &str) -> Fallible<Option<Value>> {
        let index = self.lock().index as i64;
        Ok(Some(match name {
            "index" => Value::from(index),
            "index0" => Value::from(index - 1),
            "first" => Value::from(index == 1),
            "last" => Value::from(self.peek(state)?.is_none()),
            "length" => Value::from(self.length(state)?),
            "revindex" => Value::from(self.length(state)? as i64 - index + 1),
            "revindex0" => Value::from(self.length(state)? as i64 - index),
            "depth" => Value::from(self.depth0 + 1),
            "depth0" => Value::from(self.depth0),
            "previtem" => self.lock().before.clone().unwrap_or_else(|| Undefined::because("there is no previous item")),
            "nextitem" => self.peek(state)?.unwrap_or_else(|| Undefined::because("there is no next item")),
            _ => return Ok(None),
        }))
    }

    /// `loop.cycle(a, b, ...)`.
    pub(crate) fn cycle(&self, values: &[Value]) -> Fallible<Value> {
        let index0 = self.lock().index.saturating_sub(1);
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
        self.lock().index
    }
}

impl Progress {
    fn begin_round(&mut self, next: Option<Value>) -> Option<Value> {
        let item = next?;
        self.index += 1;
        self.before = self.current.replace(item.clone());
        Some(item)
    }
}
