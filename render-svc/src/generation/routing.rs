//! Chooses the replica for a prompt: among the replicas of its model, by the prompt's prefix.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::replica::Replica;
use super::served_model::Fit;
use crate::task::model_names::ModelNames;

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

/// Returns the replicas that may serve the model. If none has one of its ids, these are the
/// replicas with its tokenizer, as long as they all serve one model.
pub(super) fn serving(replicas: &[Arc<Replica>], wanted: &ModelNames) -> Vec<Arc<Replica>> {
    let with = |fit: Fit| replicas.iter().filter(move |replica| replica.model().fit(wanted) == fit);
    let is_named = with(Fit::Exact).any(|replica| replica.model().id().is_some());
    let by_tokenizer: Vec<_> = with(Fit::Tokenizer).cloned().collect();
    with(Fit::Skewed).for_each(|replica| replica.warn_of_skew());
    let exact = with(Fit::Exact).cloned().collect();
    let ids: BTreeSet<_> = by_tokenizer.iter().map(|replica| replica.model().id().map(str::to_owned)).collect();
    if is_named || ids.len() != 1 { exact } else { [exact, by_tokenizer].concat() }
}

/// Returns why no replica can serve the model, for the caller.
pub(super) fn explanation(replicas: &[Arc<Replica>], wanted: &ModelNames) -> String {
    if replicas.is_empty() {
        return "no replica is known".to_owned();
    }
    let serving = serving(replicas, wanted);
    if !serving.is_empty() {
        let unhealthy: Vec<_> = serving.iter().filter(|replica| !replica.is_healthy()).collect();
        return match unhealthy.first() {
            Some(replica) => {
                format!("no replica of the model is healthy; {}: {}", replica.address(), replica.problem())
            }
            None => "every replica of the model was tried".to_owned(),
        };
    }
    let name = wanted.own.first().map_or("", String::as_str);
    let mut text = format!("no replica serves model {name:?}; replicas serve ");
    let served: BTreeSet<_> =
        replicas.iter().filter_map(|replica| replica.model().id().map(|id| format!("{id:?}"))).collect();
    text.push_str(&served.into_iter().collect::<Vec<_>>().join(", "));
    if replicas.iter().any(|replica| replica.model().fit(wanted) == Fit::Skewed) {
        text.push_str(", with another tokenizer");
    } else {
        let _ = write!(text, ". If one of them is this model, set generate_id in the models' configuration");
    }
    text
}
