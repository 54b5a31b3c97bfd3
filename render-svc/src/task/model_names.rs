//! The names under which the generation service may know the model of a task.

use std::sync::Arc;

use crate::catalog::GenerationIds;
use crate::model::Model;

/// A model as replicas may know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelNames {
    /// The id by which callers of this service name the model.
    pub id: String,
    /// The ids of this model: the configured `generate_id`. Without it, they are the id, the
    /// aliases, and the name of its file or folder, which is the default id of the generation
    /// service.
    pub own: Arc<[String]>,
    /// The ids of all models of this service. A replica with the id of another model never gets the
    /// task, even if its tokenizer is the same.
    pub all: Arc<GenerationIds>,
    /// Digest of the tokenizer that made the prompt, as lower-case hex.
    pub tokenizer_sha256: String,
    /// True if a replica with another id may serve the model, because its tokenizer is the same.
    /// This requires that no `generate_id` is configured, and that no other model of this service
    /// can have the tokenizer.
    pub may_have_another_id: bool,
}

impl ModelNames {
    /// Returns the names of a model, or None for a model without a tokenizer, which no task can use.
    /// `all` has the ids of all models of this service.
    #[must_use]
    pub fn of(model: &Model, all: Arc<GenerationIds>) -> Option<Self> {
        Some(Self::with_tokenizer(model, all, model.tokenizer.as_ref().ok()?.sha256()))
    }

    /// Returns the names of a model with this digest of its tokenizer.
    #[must_use]
    pub fn with_tokenizer(model: &Model, all: Arc<GenerationIds>, sha256: &str) -> Self {
        let may_have_another_id = !model.has_generate_id && all.is_only_with(sha256);
        Self {
            id: model.id.clone(),
            own: Arc::clone(&model.generation_ids),
            all,
            tokenizer_sha256: sha256.to_owned(),
            may_have_another_id,
        }
    }

    /// Returns true if it is one of the model's ids.
    #[must_use]
    pub fn is_own(&self, id: &str) -> bool {
        self.own.iter().any(|name| name == id)
    }

    /// Returns true if it is an id of another model.
    #[must_use]
    pub fn is_of_another(&self, id: &str) -> bool {
        !self.is_own(id) && self.all.contains(id)
    }
}
