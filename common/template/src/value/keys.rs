//! Creates and changes dicts. Python's keys are the same if they are equal and have equal hashes:
//! `1`, `1.0` and `True` are one key.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use minijinja::Value;

use super::dict::{Dict, Entries, MAX_SEARCHED_ENTRIES};
use super::equal::{equal, hash};
use super::object::{PyObject, nesting, nesting_above, py_object, type_name};
use crate::budget;
use crate::error::{Fallible, fail};
use crate::taint;

impl Dict {
    /// Creates a dict, charged to the budget. Later entries replace earlier ones of the same key.
    pub(crate) fn value(entries: Vec<(Value, Value)>) -> Fallible<Value> {
        let charged = 2 * entries.len() + 1;
        budget::alloc_values(charged)?;
        Self::of_distinct(without_duplicates(entries)?, charged)
    }

    /// Creates a dict that belongs to the template or the input, not to the render.
    pub(crate) fn free_of_charge(entries: Vec<(Value, Value)>) -> Fallible<Value> {
        Self::of_distinct(without_duplicates(entries)?, 0)
    }

    /// Creates a dict whose keys are distinct.
    pub(crate) fn of_distinct(entries: Vec<(Value, Value)>, charged: usize) -> Fallible<Value> {
        let nesting = nesting_above(entries.iter().flat_map(|(key, value)| [key, value]))?;
        Ok(PyObject::Dict(Self { first: Entries::of(entries)?, nesting, charged: charged.into() }).value())
    }

    /// Sets an item under a text key, in the dict that all its values share.
    pub(crate) fn set(&self, key: &Value, value: Value) -> Fallible<()> {
        if !can_be_set(&value) {
            return Err(fail(format!("setting an item of a dict to a '{}' is not supported", type_name(&value))));
        }
        let now = self.now();
        let charged = 2 * (now.list.len() + 1);
        budget::alloc_values(charged)?;
        self.charged.fetch_add(charged, Ordering::Relaxed);
        let mut list = now.list.clone();
        match list.iter_mut().find(|(found, _)| is_text(found, key)) {
            Some((_, item)) => *item = value,
            None => list.push((key.clone(), value)),
        }
        let changed = Box::new(Entries::of(list)?);
        now.changed.set(changed).map_err(|_| fail("a dict was changed by two threads"))
    }
}

impl Entries {
    /// Returns entries with an index if there are many.
    fn of(list: Vec<(Value, Value)>) -> Fallible<Self> {
        let index = if list.len() > MAX_SEARCHED_ENTRIES { index(&list)? } else { Vec::new() };
        Ok(Self { list, index, changed: OnceLock::new() })
    }
}

fn is_text(found: &Value, key: &Value) -> bool {
    found.as_str().zip(key.as_str()).is_some_and(|(found, key)| taint::same(found, key))
}

/// Returns true if an item may become this value. A dict must not contain itself, or nest deeper
/// than its containers recorded.
fn can_be_set(value: &Value) -> bool {
    let is_flat = nesting(value) == 1 && matches!(py_object(value), Some(PyObject::Seq(_) | PyObject::Generator(_)));
    nesting(value) == 0 || is_flat
}

fn index(entries: &[(Value, Value)]) -> Fallible<Vec<(u64, u32)>> {
    let mut index = Vec::with_capacity(entries.len());
    for (at, (key, _)) in entries.iter().enumerate() {
        index.push((hash(key)?, at as u32));
    }
    index.sort_unstable();
    Ok(index)
}

/// Keeps the first position and the last value of every key.
fn without_duplicates(entries: Vec<(Value, Value)>) -> Fallible<Vec<(Value, Value)>> {
    if entries.len() <= MAX_SEARCHED_ENTRIES && are_distinct_texts(&entries) {
        return Ok(entries);
    }
    // The set of keys is about as large as the dict.
    budget::room(4 * entries.len() * budget::VALUE_BYTES)?;
    let mut keys = KeySet::default();
    let mut kept: Vec<(Value, Value)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        match keys.position(&key)? {
            Some(at) => kept[at].1 = value,
            None => {
                keys.insert(key.clone())?;
                kept.push((key, value));
            }
        }
    }
    Ok(kept)
}

fn are_distinct_texts(entries: &[(Value, Value)]) -> bool {
    let is_new = |at: usize, key: &str| {
        entries[..at].iter().all(|(earlier, _)| !earlier.as_str().is_some_and(|earlier| taint::same(earlier, key)))
    };
    entries.iter().enumerate().all(|(at, (key, _))| key.as_str().is_some_and(|key| is_new(at, key)))
}

/// Distinct keys in insertion order.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    keys: Vec<Value>,
    positions: HashMap<u64, Vec<usize>>,
}

impl KeySet {
    fn position(&self, key: &Value) -> Fallible<Option<usize>> {
        for &at in self.positions.get(&hash(key)?).map_or(&[][..], Vec::as_slice) {
            if equal(&self.keys[at], key)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Adds a key; returns false if it exists already, fails if it cannot be a key.
    pub(crate) fn insert(&mut self, key: Value) -> Fallible<bool> {
        if self.position(&key)?.is_some() {
            return Ok(false);
        }
        self.positions.entry(hash(&key)?).or_default().push(self.keys.len());
        self.keys.push(key);
        Ok(true)
    }
}
