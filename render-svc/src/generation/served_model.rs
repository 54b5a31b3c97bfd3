//! Which model a replica serves, and whether it is the model of a task.

use tandem_common::pb::generate::v1::LoadedModel;
use tonic::Status;

use crate::task::model_names::ModelNames;

/// Longest id of a replica's model, in bytes.
const MAX_ID_BYTES: usize = 256;

/// The model of a replica, as its GetLoadedModel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplicaModel {
    /// Not known yet.
    Unknown,
    /// The server has no GetLoadedModel. It may serve any model.
    Any,
    /// The model.
    Known {
        /// Its id at the replica.
        id: String,
        /// Digest of its tokenizer, as lower-case hex.
        tokenizer_sha256: String,
    },
}

impl TryFrom<LoadedModel> for ReplicaModel {
    type Error = Status;

    /// Fails if the id or the digest is malformed. The error repeats neither.
    fn try_from(model: LoadedModel) -> Result<Self, Status> {
        let LoadedModel { id, tokenizer_sha256, .. } = model;
        if id.len() > MAX_ID_BYTES {
            let text = format!("GetLoadedModel: id has {} bytes, limit {MAX_ID_BYTES}", id.len());
            return Err(Status::failed_precondition(text));
        }
        if id.chars().any(char::is_control) {
            return Err(Status::failed_precondition("GetLoadedModel: id has a control character"));
        }
        if tokenizer_sha256.len() != 64 || !tokenizer_sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Status::failed_precondition("GetLoadedModel: tokenizer_sha256 is not 64 hex digits"));
        }
        Ok(Self::Known { id, tokenizer_sha256 })
    }
}

/// How well a replica's model fits a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Id and tokenizer are the task's, or the replica does not name its model.
    Exact,
    /// The tokenizer is the task's, and the id is unknown to this service. The task's model may
    /// have another id than this service's.
    Tokenizer,
    /// The id is the task's, and the tokenizer is another.
    Skewed,
    /// Another model.
    None,
}

impl ReplicaModel {
    /// Compares the model with the model of a task.
    pub(super) fn fit(&self, wanted: &ModelNames) -> Fit {
        let Self::Known { id, tokenizer_sha256 } = self else { return Fit::Exact };
        let has_tokenizer = *tokenizer_sha256 == wanted.tokenizer_sha256;
        match (wanted.is_own(id), has_tokenizer) {
            (true, true) => Fit::Exact,
            (true, false) => Fit::Skewed,
            (false, true) if wanted.may_have_another_id && !id.is_empty() && !wanted.is_of_another(id) => {
                Fit::Tokenizer
            }
            (false, _) => Fit::None,
        }
    }

    /// Returns the id of the model at the replica.
    pub(super) fn id(&self) -> Option<&str> {
        if let Self::Known { id, .. } = self { Some(id) } else { None }
    }
}
