//! The requests of tasks to the generation service.

use std::sync::Arc;
use std::time::Instant;

use tandem_common::pb::generate::v1::{Grammar, OutputSpec, ReturnOptions, Sampling, Stop};
use tandem_common::random::random_u64;
use tandem_model_files::tokenizer::Encoding;

use super::model_names::ModelNames;
use crate::catalog::GenerationIds;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::render::{Output, Rendered};

/// A rendered conversation and how to answer it.
#[derive(Debug)]
pub struct Task {
    /// The conversation, rendered with token ids.
    pub rendered: Rendered,
    /// The ids of all models of this service at the generation service.
    pub known_ids: Arc<GenerationIds>,
    /// Generation parameters.
    pub options: GenerationOptions,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
}

/// A prompt and how to generate its output.
#[derive(Debug, Clone)]
pub struct GenerationRequest {
    /// The model, as replicas may know it.
    pub model: ModelNames,
    /// The prompt's token ids.
    pub prompt: Vec<u32>,
    /// Generation parameters.
    pub options: GenerationOptions,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
}

/// Returns the output spec in force: the inferred one if the request has none. The inferred eos ids
/// also apply if the request's output spec has none.
#[must_use]
pub fn output_spec_in_force(requested: Option<OutputSpec>, inferred: OutputSpec) -> OutputSpec {
    match requested {
        None => inferred,
        Some(spec) if spec.eos_token_ids.is_empty() => OutputSpec { eos_token_ids: inferred.eos_token_ids, ..spec },
        Some(spec) => spec,
    }
}

/// Generation parameters, forwarded to the generation service. Contract messages keep their type, as
/// in [`generator`](super::generator).
#[derive(Debug, Clone, Default)]
pub struct GenerationOptions {
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// When the output ends.
    pub stop: Option<Stop>,
    /// Values to return besides text.
    pub return_options: ReturnOptions,
    /// How the output is read.
    pub output_spec: OutputSpec,
    /// Grammar that the output must match.
    pub grammar: Option<Grammar>,
    /// Higher is scheduled first.
    pub priority: i32,
    /// Cached prefixes are shared between requests with the same salt.
    pub cache_salt: String,
}

impl TryFrom<Task> for GenerationRequest {
    type Error = Error;

    /// Creates a request that any replica can resume: with a seed, so that each draws the same
    /// random numbers, and with token ids.
    ///
    /// # Errors
    /// More than one output is requested, the conversation has images, or the model has no
    /// tokenizer.
    fn try_from(task: Task) -> Result<Self, Error> {
        let Task { rendered, known_ids, mut options, deadline } = task;
        if options.sampling.n.is_some_and(|n| n > 1) {
            return Err(Invalid::new("sampling.n", "must be 1: a task has one answer").into());
        }
        let Output::Prompt { tokens: Some(Encoding { ids: prompt, .. }), .. } = rendered.output else {
            return Err(Error::ImagesNotSupported);
        };
        options.sampling.seed.get_or_insert_with(random_u64);
        options.return_options.token_ids = true;
        let tokenizer_sha256 = rendered.model.tokenizer()?.sha256();
        let model = ModelNames::with_tokenizer(&rendered.model, known_ids, tokenizer_sha256);
        Ok(Self { model, prompt, options, deadline })
    }
}
