//! A cache of encoded texts, because each turn of a chat repeats the conversation. All tokenizers
//! of the process share it, so that its memory does not grow with their number.
//!
//! Text between two special tokens is encoded independently of its surroundings, so it is the unit
//! of the cache. Keys contain the full text, so hash collisions are harmless.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

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

/// The size of the shared map, without the map's overhead.
const SHARED_BYTES: u64 = 64 << 20;

/// A bounded map from text to ids, with eviction in approximate LRU order.
type Texts = Map<Key, Arc<[u32]>, Weight>;

static SHARED: LazyLock<Texts> = LazyLock::new(|| texts(SHARED_BYTES));
static OWNERS: AtomicU64 = AtomicU64::new(0);

/// A tokenizer's part of the shared map, or a separate map.
pub(super) struct Cache {
    /// The tokenizer, in the keys of its entries.
    owner: u64,
    own: OnceLock<Texts>,
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
    owner: u64,
}

/// A borrowed key with the same hash.
#[derive(Hash)]
struct KeyRef<'a> {
    text: &'a str,
    manner: Manner,
    owner: u64,
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self.text == *key.text && self.manner == key.manner && self.owner == key.owner
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

fn texts(bytes: u64) -> Texts {
    let options = OptionsBuilder::new()
        .shards(SHARDS)
        .estimated_items_capacity(4096)
        .weight_capacity(bytes)
        .build()
        .expect("every setting is given");
    Map::with_options(options, Weight, DefaultHashBuilder::default(), DefaultLifecycle::default())
}

impl Cache {
    /// Creates a tokenizer's part of the shared map.
    pub(super) fn new() -> Self {
        Self { owner: OWNERS.fetch_add(1, Ordering::Relaxed), own: OnceLock::new() }
    }

    /// Gives the tokenizer a separate map, of at most `bytes` bytes without the map's overhead. 0
    /// disables the cache.
    pub(super) fn set_bytes(&self, bytes: u64) {
        self.own.get_or_init(|| texts(bytes)).set_capacity(bytes);
    }

    /// Appends the ids of a text to `ids`: from the cache, or else from `encode`.
    pub(super) fn extend<E>(
        &self,
        text: &str,
        manner: Manner,
        ids: &mut Vec<u32>,
        encode: impl FnOnce(&mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (texts, owner) = (self.own.get().unwrap_or(&SHARED), self.owner);
        if text.len() < MIN_BYTES || texts.capacity() == 0 {
            return encode(ids);
        }
        let cached = texts.get(&KeyRef { text, manner, owner });
        LOOKUPS.add(1, &[KeyValue::new("result", if cached.is_some() { "hit" } else { "miss" })]);
        if let Some(cached) = cached {
            ids.extend_from_slice(&cached);
            return Ok(());
        }
        let start = ids.len();
        encode(ids)?;
        texts.insert(Key { text: text.into(), manner, owner }, ids[start..].into());
        Ok(())
    }
}
