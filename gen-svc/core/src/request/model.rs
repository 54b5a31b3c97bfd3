//! The served model, as requests use it.

use tandem_model_files::tokenizer::Tokenizer;

use crate::error::RequestError;
use crate::grammar::Grammars;
use crate::media::Vision;
use crate::sampling::SamplingOptions;

/// The served model.
#[derive(Debug)]
pub struct ServedModel {
    /// The id in requests.
    pub id: String,
    /// The architecture, such as `llama`.
    pub architecture: String,
    /// The maximum number of tokens of prompt and output together.
    pub context_length: usize,
    /// The maximum number of tokens of a prompt.
    pub max_prompt_tokens: usize,
    /// The maximum number of tokens of an output.
    pub max_output_tokens: usize,
    /// The size of the vocabulary. Token ids are below it.
    pub vocabulary_size: usize,
    /// The dtype, such as `f32`.
    pub dtype: String,
    /// The quantization, such as `none`.
    pub quantization: String,
    /// The device, such as `cpu`.
    pub device: String,
    pub tokenizer: Tokenizer,
    /// The ids that end a turn.
    pub eos_token_ids: Vec<u32>,
    /// The defaults in the model's files.
    pub defaults: SamplingOptions,
    /// The processor of images. `None`: the model supports text only.
    pub vision: Option<Vision>,
    /// The compiler of grammars.
    pub grammars: Grammars,
}

impl ServedModel {
    /// Returns true if images at URLs are fetched.
    #[must_use]
    pub fn fetches_images(&self) -> bool {
        self.vision.as_ref().is_some_and(Vision::fetches_images)
    }

    /// Fails if `id` names another model. An empty id names the served model.
    ///
    /// # Errors
    /// [`RequestError::ModelNotFound`].
    pub fn check_id(&self, id: &str) -> Result<(), RequestError> {
        if id.is_empty() || id == self.id {
            return Ok(());
        }
        Err(RequestError::ModelNotFound { asked: id.to_owned(), served: self.id.clone() })
    }
}
