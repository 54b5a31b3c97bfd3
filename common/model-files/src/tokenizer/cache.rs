//! A cache of encoded texts, because each turn of a chat repeats the conversation.
//!
//! Text between two special tokens is encoded independently of its surroundings, so it is the unit
//! of the cache. Keys contain the full text, so hash collisions are harmless.

use std::sync::{Arc, LazyLock};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use quick_cache::sync::{Cache as Map, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Equivalent, OptionsBuilder, Weighter};

use opentelemetry::global::meter;

/// Encoding a shorter text is as fast as a lookup.
const MIN_BYTES: usize = 128;

/// The memory of an entry without its text and its ids.
const OVERHEAD_BYTES: u64 = 96;

/// The count of shards, each with a lock. An entry must fit into one shard.
const SHARDS: usize = 8;

static LOOKUPS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    meter("tandem")
        .u64_counter("tandem.tokenizer.cache.lookups")
        .with_description("Lookups in the cache of encoded texts, by result: hit or miss.")
        .build()
});

/// A bounded map from text to ids, with eviction in approximate LRU order.
pub(super) struct Cache {
    ids: Map<Key, Arc<[u32]>, Weight>,
}

/// The mode of encoding, which determines the ids together with the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Manner {
    /// No added token is recognized.
    Literal,
    /// No prefix is added.
    Inside,
    /// The prefix is added.
    Start,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    text: Box<str>,
    manner: Manner,
}

/// A borrowed key with the same hash.
#[derive(Hash)]
struct KeyRef<'a> {
    text: &'a str,
    manner: Manner,
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self.text == *key.text && self.manner == key.manner
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Arc<[u32]>> for Weight {
    fn weight(&self, key: &Key, ids: &Arc<[u32]>) -> u64 {
        (key.text.len() + size_of_val(&**ids)) as u64 + OVERHEAD_BYTES
    }
}

/// Registers the metrics of caches, so that they are exported before the first lookup.
pub(super) fn register_metrics() {
    for result in ["hit", "miss"] {
        LOOKUPS.add(0, &[KeyValue::new("result", result)]);
    }
}

impl Cache {
    /// Creates a cache of at most `bytes` bytes, without the map's overhead. 0 disables it.
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

    /// Appends the ids of a text to `ids`: from the cache, or else from `encode`.
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
        let cached = self.ids.get(&KeyRef { text, manner });
        LOOKUPS.add(1, &[KeyValue::new("result", if cached.is_some() { "hit" } else { "miss" })]);
        if let Some(cached) = cached {
            ids.extend_from_slice(&cached);
            return Ok(());
        }
        let start = ids.len();
        encode(ids)?;
        self.ids.insert(Key { text: text.into(), manner }, ids[start..].into());
        Ok(())
    }
}
