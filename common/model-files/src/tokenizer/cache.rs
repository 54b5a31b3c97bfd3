//! The ids of text that was encoded before. The turns of a chat repeat all that was said.
//!
//! What lies between two special tokens is encoded by itself, whatever stands around it, so it is what is remembered. Texts
//! are compared in full: two that share a hash are still told apart.

use std::sync::{Arc, LazyLock};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use quick_cache::sync::{Cache as Map, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Equivalent, OptionsBuilder, Weighter};

use opentelemetry::global::meter;

/// Shorter text is encoded in the time that it takes to look it up.
const MIN_BYTES: usize = 128;

/// What an entry takes beside its text and its ids, in bytes.
const OVERHEAD: u64 = 96;

/// Parts with a lock each. No entry can be larger than a part.
const SHARDS: usize = 8;

static LOOKUPS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    meter("tandem")
        .u64_counter("tandem.tokenizer.cache.lookups")
        .with_description("Texts looked up among those encoded before: found (hit), or not (miss).")
        .build()
});

/// A bounded map from text to ids. What was not used for long goes first.
pub(super) struct Cache {
    ids: Map<Key, Arc<[u32]>, Weight>,
}

/// How a text is encoded, which decides its ids as much as its letters do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Manner {
    /// No added token is recognised in it.
    Literal,
    /// Nothing is put before it.
    Inside,
    /// What belongs before a text is put before it.
    Start,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    text: Box<str>,
    manner: Manner,
}

/// A key that borrows its text. Its hash is the same.
#[derive(Hash)]
struct Wanted<'a> {
    text: &'a str,
    manner: Manner,
}

impl Equivalent<Key> for Wanted<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self.text == *key.text && self.manner == key.manner
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Arc<[u32]>> for Weight {
    fn weight(&self, key: &Key, ids: &Arc<[u32]>) -> u64 {
        (key.text.len() + size_of_val(&**ids)) as u64 + OVERHEAD
    }
}

impl Cache {
    /// Holds at most so many bytes, its own book-keeping not counted; 0 holds nothing.
    pub(super) fn new(bytes: u64) -> Self {
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(4096)
            .weight_capacity(bytes)
            .build()
            .expect("every setting is given");
        Self { ids: Map::with_options(options, Weight, DefaultHashBuilder::default(), DefaultLifecycle::default()) }
    }

    pub(super) fn set_bytes(&self, bytes: u64) {
        self.ids.set_capacity(bytes);
    }

    /// Adds the ids of a text to `ids`: those remembered, or those that `encode` adds.
    pub(super) fn extend<E>(
        &self,
        text: &str,
        manner: Manner,
        ids: &mut Vec<u32>,
        encode: impl FnOnce(&mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        if text.len() < MIN_BYTES || self.ids.capacity() == 0 {
            return encode(ids);
        }
        let known = self.ids.get(&Wanted { text, manner });
        LOOKUPS.add(1, &[KeyValue::new("result", if known.is_some() { "hit" } else { "miss" })]);
        if let Some(known) = known {
            ids.extend_from_slice(&known);
            return Ok(());
        }
        let start = ids.len();
        encode(ids)?;
        self.ids.insert(Key { text: text.into(), manner }, ids[start..].into());
        Ok(())
    }
}
