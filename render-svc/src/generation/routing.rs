//! Chooses the replica for a prompt.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::replica::Replica;

/// Tokens of a block of the generation service's KV cache.
const BLOCK_TOKENS: usize = 16;
/// Tokens at the start of a prompt that determine its replica: whole blocks.
const MAX_PREFIX_TOKENS: usize = 16 * BLOCK_TOKENS;

/// Hash of a prompt's prefix. Prompts with the same key prefer the same replica.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrefixKey(u64);

impl PrefixKey {
    /// Hashes the whole blocks at the start of a prompt, up to [`MAX_PREFIX_TOKENS`].
    pub(super) fn new(salt: &str, token_ids: &[u32]) -> Self {
        let blocks = token_ids.len().min(MAX_PREFIX_TOKENS) / BLOCK_TOKENS;
        let mut hasher = DefaultHasher::new();
        (salt, &token_ids[..blocks * BLOCK_TOKENS]).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Returns the key's weight at a replica. It depends on no other replica, and is equal in every
    /// render service.
    fn affinity(self, replica: &Replica) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0, replica.id()).hash(&mut hasher);
        hasher.finish()
    }
}

/// Returns the replica with the highest affinity (rendezvous hashing) among the healthy, untried ones
/// that have at most a quarter more tasks than their share.
pub(super) fn choose(replicas: &[Arc<Replica>], key: PrefixKey, tried: &HashSet<u64>) -> Option<Arc<Replica>> {
    let is_usable = |replica: &&Arc<Replica>| replica.is_healthy() && !tried.contains(&replica.id());
    let mut candidates: Vec<_> = replicas.iter().filter(is_usable).collect();
    let total: usize = candidates.iter().map(|replica| replica.tasks()).sum();
    let limit = ((total + 1) * 5).div_ceil(4 * candidates.len().max(1));
    candidates.retain(|replica| replica.tasks() < limit);
    candidates.into_iter().max_by_key(|replica| key.affinity(replica)).cloned()
}
