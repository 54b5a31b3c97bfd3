//! Dicts, with Python's rule that keys are the same when they are equal and hash alike: `1`, `1.0` and `True` are one key.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::super::marks;
use super::super::python::equal::equal;
use super::{Obj, Py, SeqKind, nesting, nesting_above, obj, py, type_name};

/// Up to this size, looking at every entry is faster than hashing.
const SMALL: usize = 8;

/// A dict in insertion order.
#[derive(Debug)]
pub(crate) struct Dict {
    first: Entries,
    nesting: u16,
    /// How many values the budget was charged for.
    charged: AtomicUsize,
}

/// What a dict holds. A block that sets an item leaves the entries in place, because they may be borrowed, and puts the
/// changed ones after them.
#[derive(Debug)]
struct Entries {
    list: Vec<(Value, Value)>,
    /// Hash and position of every entry, sorted by hash; empty while the dict is small.
    index: Vec<(u64, u32)>,
    changed: OnceLock<Box<Self>>,
}

impl Entries {
    fn of(list: Vec<(Value, Value)>) -> Fallible<Self> {
        let index = if list.len() > SMALL { index(&list)? } else { Vec::new() };
        Ok(Self { list, index, changed: OnceLock::new() })
    }
}

impl Drop for Dict {
    fn drop(&mut self) {
        budget::free_values(self.charged.load(Ordering::Relaxed));
        // One after the other: a long chain of changes would be dropped by recursion.
        let mut next = self.first.changed.take();
        while let Some(mut entries) = next {
            next = entries.changed.take();
        }
    }
}

impl Dict {
    /// A new dict, charged to the budget; later entries replace earlier ones of the same key.
    pub(crate) fn value(entries: Vec<(Value, Value)>) -> Fallible<Value> {
        let charged = 2 * entries.len() + 1;
        budget::alloc_values(charged)?;
        Self::of_distinct(without_duplicates(entries)?, charged)
    }

    /// A new dict that belongs to the template or the input, not to the render.
    pub(crate) fn free_of_charge(entries: Vec<(Value, Value)>) -> Fallible<Value> {
        Self::of_distinct(without_duplicates(entries)?, 0)
    }

    /// A new dict whose keys are known to be distinct.
    pub(crate) fn of_distinct(entries: Vec<(Value, Value)>, charged: usize) -> Fallible<Value> {
        let nesting = nesting_above(entries.iter().flat_map(|(key, value)| [key, value]))?;
        Ok(Obj::Dict(Self { first: Entries::of(entries)?, nesting, charged: charged.into() }).value())
    }

    /// The entries as they are now. Every change before costs a step.
    fn now(&self) -> &Entries {
        let (mut entries, mut changes) = (&self.first, 0);
        while let Some(changed) = entries.changed.get() {
            entries = changed;
            changes += 1;
        }
        budget::spend(changes);
        entries
    }

    /// Sets an item under a text key, for all who hold the dict.
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

    pub(crate) fn len(&self) -> usize {
        self.now().list.len()
    }

    pub(crate) fn entries(&self) -> &[(Value, Value)] {
        &self.now().list
    }

    pub(super) fn nesting(&self) -> u16 {
        self.nesting
    }

    /// Looks up any key; an error if it cannot be a key.
    pub(crate) fn get(&self, key: &Value) -> Fallible<Option<&Value>> {
        if let Some(text) = key.as_str() {
            budget::scan(text.len())?;
            return Ok(self.get_str(text));
        }
        budget::steps(3)?;
        let hash = hash(key)?;
        let entries = self.now();
        let Some(candidates) = entries.candidates(hash) else {
            return find(&entries.list, key);
        };
        for &(_, at) in candidates {
            let (found, value) = &entries.list[at as usize];
            if equal(found, key)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Looks up a text key.
    pub(crate) fn get_str(&self, key: &str) -> Option<&Value> {
        let matches = |(found, _): &&(Value, Value)| found.as_str().is_some_and(|found| marks::same(found, key));
        let entries = self.now();
        let entry = match entries.candidates(hash_str(key)) {
            None => entries.list.iter().find(matches),
            Some(candidates) => candidates.iter().map(|&(_, at)| &entries.list[at as usize]).find(matches),
        };
        entry.map(|(_, value)| value)
    }
}

impl Entries {
    /// The entries of one hash; none if the dict has no index.
    fn candidates(&self, hash: u64) -> Option<&[(u64, u32)]> {
        if self.index.is_empty() {
            return None;
        }
        let start = self.index.partition_point(|&(other, _)| other < hash);
        let len = self.index[start..].iter().take_while(|&&(other, _)| other == hash).count();
        Some(&self.index[start..start + len])
    }
}

fn is_text(found: &Value, key: &Value) -> bool {
    found.as_str().zip(key.as_str()).is_some_and(|(found, key)| marks::same(found, key))
}

/// Whether an item may become this value. A dict must not come to hold itself, or nest deeper than what holds it knows.
fn can_be_set(value: &Value) -> bool {
    let is_flat = nesting(value) == 1 && matches!(obj(value), Some(Obj::Seq(_) | Obj::Generator(_)));
    nesting(value) == 0 || is_flat
}

fn find<'a>(entries: &'a [(Value, Value)], key: &Value) -> Fallible<Option<&'a Value>> {
    for (found, value) in entries {
        if equal(found, key)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
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
    if entries.len() <= SMALL && are_distinct_texts(&entries) {
        return Ok(entries);
    }
    // The set of keys takes about as much as the dict.
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
        entries[..at].iter().all(|(earlier, _)| !earlier.as_str().is_some_and(|earlier| marks::same(earlier, key)))
    };
    entries.iter().enumerate().all(|(at, (key, _))| key.as_str().is_some_and(|key| is_new(at, key)))
}

/// Distinct keys in the order in which they came.
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

    /// Adds a key; false if it is there already, an error if it cannot be a key.
    pub(crate) fn insert(&mut self, key: Value) -> Fallible<bool> {
        if self.position(&key)?.is_some() {
            return Ok(false);
        }
        self.positions.entry(hash(&key)?).or_default().push(self.keys.len());
        self.keys.push(key);
        Ok(true)
    }
}

static HASHING: LazyLock<RandomState> = LazyLock::new(RandomState::new);

fn hash_str(text: &str) -> u64 {
    HASHING.hash_one(marks::plain(text))
}

/// Python's `hash`: equal values hash alike, lists and dicts cannot be hashed.
pub(crate) fn hash(value: &Value) -> Fallible<u64> {
    budget::steps(1)?;
    match py(value) {
        Py::Str(text) => {
            budget::scan(text.len())?;
            Ok(hash_str(text))
        }
        Py::None => Ok(HASHING.hash_one(0xFF_u8)),
        Py::Bool(flag) => Ok(HASHING.hash_one(i128::from(flag))),
        Py::Int(int) => Ok(HASHING.hash_one(int)),
        Py::Float(float) => Ok(hash_float(float)),
        Py::Undefined(_) => Ok(HASHING.hash_one(0xFE_u8)),
        Py::Obj(object) => hash_object(value, object),
    }
}

fn hash_float(float: f64) -> u64 {
    if float.trunc() == float && float.abs() < 1e38 {
        HASHING.hash_one(float as i128)
    } else {
        HASHING.hash_one(float.to_bits())
    }
}

fn hash_object(value: &Value, object: &Obj) -> Fallible<u64> {
    match object {
        Obj::Seq(seq) if seq.kind() != SeqKind::List => hash_items(seq.items()),
        Obj::Seq(_) | Obj::Dict(_) | Obj::View(_) => Err(fail(format!("unhashable type: '{}'", type_name(value)))),
        Obj::BigInt(big) => Ok(HASHING.hash_one(big.to_f64().to_bits())),
        Obj::Bytes(bytes) => {
            budget::scan(bytes.letters().len())?;
            Ok(HASHING.hash_one((0xFD_u8, marks::plain(bytes.letters()))))
        }
        Obj::Range(range) => hash_items(&[range.start(), range.stop(), range.step()].map(Value::from)),
        other => Ok(HASHING.hash_one(std::ptr::from_ref(other).addr())),
    }
}

fn hash_items(items: &[Value]) -> Fallible<u64> {
    budget::steps(items.len() + 1)?;
    let mut hasher = HASHING.build_hasher();
    for item in items {
        hash(item)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// What `keys()`, `values()` and `items()` of a dict give: a live look at it.
#[derive(Debug)]
pub(crate) struct View {
    kind: ViewKind,
    dict: Value,
}

/// Which part of the entries a view shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ViewKind {
    Keys,
    Values,
    Items,
}

impl ViewKind {
    pub(super) fn type_name(self) -> &'static str {
        match self {
            Self::Keys => "dict_keys",
            Self::Values => "dict_values",
            Self::Items => "dict_items",
        }
    }
}

static EMPTY: Dict = Dict {
    first: Entries { list: Vec::new(), index: Vec::new(), changed: OnceLock::new() },
    nesting: 0,
    charged: AtomicUsize::new(0),
};

impl View {
    pub(crate) fn value(kind: ViewKind, dict: &Value) -> Value {
        Obj::View(Self { kind, dict: dict.clone() }).value()
    }

    pub(crate) fn kind(&self) -> ViewKind {
        self.kind
    }

    pub(crate) fn dict(&self) -> &Dict {
        super::dict(&self.dict).unwrap_or(&EMPTY)
    }

    pub(super) fn nesting(&self) -> u16 {
        self.dict().nesting() + 1
    }

    /// The item at a position.
    pub(crate) fn item(&self, at: usize) -> Option<Fallible<Value>> {
        let (key, value) = self.dict().entries().get(at)?;
        Some(match self.kind {
            ViewKind::Keys => Ok(key.clone()),
            ViewKind::Values => Ok(value.clone()),
            ViewKind::Items => super::tuple(vec![key.clone(), value.clone()]),
        })
    }
}
