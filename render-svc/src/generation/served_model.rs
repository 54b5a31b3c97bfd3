//! Which model a replica serves, and whether it is the model of a task.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use tandem_common::pb::generate::v1::ModelInfo;

use super::replica::Replica;
use crate::task::model_names::ModelNames;

/// The model of a replica, as its GetModel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplicaModel {
    /// Not known yet.
    Unknown,
    /// The server has no GetModel. It may serve any model.
    Any,
    /// The model.
    Known {
        /// Its id at the replica.
        id: String,
        /// Digest of its tokenizer, as lower-case hex.
        tokenizer_sha256: String,
    },
}

impl From<ModelInfo> for ReplicaModel {
    fn from(info: ModelInfo) -> Self {
        Self::Known { id: info.id, tokenizer_sha256: info.tokenizer_sha256 }
    }
}

/// How well a replica's model fits a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Id and tokenizer are the task's, or the replica does not tell.
    Exact,
    /// The tokenizer is the task's, and the id is unknown to this service.
    Tokenizer,
    /// The id is the task's, and the tokenizer is another.
    Skewed,
    /// Another model.
    None,
}

impl ReplicaModel {
    fn fit(&self, wanted: &ModelNames) -> Fit {
        let Self::Known { id, tokenizer_sha256 } = self else { return Fit::Exact };
        let has_tokenizer = *tokenizer_sha256 == wanted.tokenizer_sha256;
        match (wanted.is_own(id), has_tokenizer) {
            (true, true) => Fit::Exact,
            (true, false) => Fit::Skewed,
            (false, true) if !wanted.is_of_another(id) => Fit::Tokenizer,
            (false, _) => Fit::None,
        }
    }

    /// Returns the id of the model at the replica.
    pub(super) fn id(&self) -> Option<&str> {
        if let Self::Known { id, .. } = self { Some(id) } else { None }
    }
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
