//! Chooses the replica for a prompt: among the replicas of its model, by the prompt's prefix.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::replica::{Candidate, Lease, Replica};
use super::served_model::{Fit, ReplicaModel};
use crate::agreed_hash::AgreedHash;
use crate::task::model_names::ModelNames;

/// Tokens of a block of the generation service's KV cache.
const BLOCK_TOKENS: usize = 16;
/// Tokens at the start of a prompt that determine its replica: whole blocks.
const MAX_PREFIX_TOKENS: usize = 16 * BLOCK_TOKENS;

/// Hash of a prompt's prefix. Prompts with the same key prefer the same replica.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrefixKey(u64);

impl PrefixKey {
    /// Hashes the whole blocks at the start of a prompt, up to [`MAX_PREFIX_TOKENS`]. A prompt of
    /// messages has units of text and images in the place of ids.
    pub(super) fn new(salt: &str, token_ids: &[u32]) -> Self {
        let blocks = token_ids.len().min(MAX_PREFIX_TOKENS) / BLOCK_TOKENS;
        let hash = AgreedHash::EMPTY.bytes(salt.as_bytes());
        let ids = token_ids[..blocks * BLOCK_TOKENS].iter();
        Self(ids.fold(hash, |hash, id| hash.number(u64::from(*id))).finish())
    }

    /// Returns the key's weight at a replica. It depends on no other replica, and is equal in every
    /// render service.
    fn affinity(self, replica: &Replica) -> u64 {
        AgreedHash::EMPTY.number(self.0).number(replica.id()).finish()
    }
}

/// Leases the replica with the highest affinity (rendezvous hashing) among the healthy, untried ones
/// that have at most a quarter more tasks than their share. Ejected replicas are left out. If all
/// healthy ones are ejected, leases the one whose ejection ends first.
pub(super) fn choose(candidates: &[Candidate], key: PrefixKey, tried: &HashSet<u64>) -> Option<Lease> {
    let is_usable = |Candidate { replica, .. }: &&Candidate| replica.is_healthy() && !tried.contains(&replica.id());
    let usable: Vec<_> = candidates.iter().filter(is_usable).collect();
    let mut open: Vec<_> = usable.iter().filter(|candidate| !candidate.replica.is_ejected()).collect();
    let total: usize = open.iter().map(|candidate| candidate.replica.tasks()).sum();
    let limit = ((total + 1) * 5).div_ceil(4 * open.len().max(1));
    open.retain(|candidate| candidate.replica.tasks() < limit);
    open.sort_by_key(|candidate| Reverse(key.affinity(&candidate.replica)));
    let leased = open.into_iter().find_map(|candidate| Lease::take(candidate));
    leased.or_else(|| {
        let is_in_use = |Candidate { replica, .. }: &Candidate| replica.is_healthy() && !replica.is_ejected();
        if candidates.iter().any(is_in_use) {
            return None;
        }
        let first = usable.iter().min_by_key(|candidate| candidate.replica.ejected_until())?;
        Some(Lease::take_anyway(first))
    })
}

/// Returns the replicas that may serve the model. If none has one of its ids, these are the
/// replicas with its tokenizer. This requires that they all serve one model, that the model may
/// have another id, and that every replica's model is known.
pub(super) fn serving(replicas: &[Arc<Replica>], wanted: &ModelNames) -> Vec<Candidate> {
    let all: Vec<_> = replicas.iter().map(Candidate::from).collect();
    let with = |fit: Fit| all.iter().filter(move |candidate| candidate.model.fit(wanted) == fit);
    with(Fit::Skewed).for_each(|candidate| candidate.replica.warn_of_skew());
    let exact: Vec<_> = with(Fit::Exact).cloned().collect();
    let is_named = exact.iter().any(|candidate| candidate.model.id().is_some());
    let is_any_unknown = all.iter().any(|candidate| *candidate.model == ReplicaModel::Unknown);
    let mut by_tokenizer = with(Fit::Tokenizer);
    let Some(first) = by_tokenizer.next().filter(|_| !is_named && !is_any_unknown) else { return exact };
    if by_tokenizer.any(|other| other.model.id() != first.model.id()) {
        return exact;
    }
    first.replica.warn_of_another_id(&first.model, wanted);
    exact.into_iter().chain(with(Fit::Tokenizer).cloned()).collect()
}

/// Returns why no replica can serve the model, for the caller: without addresses, which only the log
/// has.
pub(super) fn explanation(replicas: &[Arc<Replica>], wanted: &ModelNames) -> String {
    let name = &wanted.id;
    if replicas.is_empty() {
        return format!("no replica is known that could serve model {name:?}");
    }
    let serving = serving(replicas, wanted);
    let mut text = if serving.is_empty() {
        format!("no replica serves model {name:?}")
    } else if serving.iter().all(|candidate| candidate.replica.is_healthy()) {
        return format!("every replica of model {name:?} was tried");
    } else {
        format!("no replica of model {name:?} is healthy")
    };
    let served: BTreeSet<_> =
        replicas.iter().filter_map(|replica| replica.model().id().map(|id| format!("{id:?}"))).collect();
    if !served.is_empty() {
        let _ = write!(text, "; replicas serve {}", served.into_iter().collect::<Vec<_>>().join(", "));
    }
    if replicas.iter().any(|replica| replica.model().fit(wanted) == Fit::Skewed) {
        text.push_str(", with another tokenizer");
    } else if serving.is_empty() {
        text.push_str(". If one of them is this model, set generate_id in the models' configuration");
    }
    let unnamed = replicas.iter().filter(|replica| *replica.model() == ReplicaModel::Unknown).count();
    if unnamed > 0 {
        let _ = write!(
            text,
            "; {unnamed} of {} replicas have not named their model, and the log has the reason",
            replicas.len()
        );
    }
    text
}
