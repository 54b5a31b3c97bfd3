//! The facts of a served model whose weights a test makes up.

use std::sync::LazyLock;

use crate::files::default_model;
use tandem_core::grammar::Grammars;
use tandem_core::request::{SamplingOptions, ServedModel};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;

/// The model's vocabulary: the first tokens of the default model.
pub const VOCABULARY: usize = 64;
/// The model's context in tokens.
pub const CONTEXT: usize = 1024;

/// The token that ends outputs, in models with all tokens.
const EOS: u32 = 2;

/// Returns a model with the tokenizer of the default model.
///
/// # Panics
/// If the default model has no tokenizer.
#[must_use]
pub fn served_model() -> ServedModel {
    static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
        let artifacts = Artifacts::load(&default_model()).expect("a model");
        artifacts.tokenizer().expect("a tokenizer")
    });
    ServedModel {
        id: "echo".to_owned(),
        architecture: "echo".to_owned(),
        max_prompt_tokens: usize::MAX,
        max_output_tokens: usize::MAX,
        context_length: CONTEXT,
        vocabulary_size: VOCABULARY,
        dtype: "f32".to_owned(),
        quantization: "none".to_owned(),
        device: "cpu".to_owned(),
        tokenizer: TOKENIZER.clone(),
        eos_token_ids: Vec::new(),
        defaults: SamplingOptions::default(),
        vision: None,
        grammars: Grammars::new(TOKENIZER.clone(), VOCABULARY, Vec::new(), None),
    }
}

/// Returns the facts of a model with every token of the default model, one of which ends outputs.
#[must_use]
pub fn served_with_all_tokens() -> ServedModel {
    let served = served_model();
    let (vocabulary_size, eos_token_ids) = (served.tokenizer.vocab_size(), vec![EOS]);
    let grammars = Grammars::new(served.tokenizer.clone(), vocabulary_size, eos_token_ids.clone(), None);
    ServedModel { vocabulary_size, eos_token_ids, grammars, ..served }
}
