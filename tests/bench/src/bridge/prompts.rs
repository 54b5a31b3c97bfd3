//! Prompts in English, so that answers have few characters of several tokens: llama.cpp's stream loses ids of these, and
//! the bridge has to find them.

use std::path::Path;

use anyhow::Result;
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;

/// Prompts of one length, each with another number.
#[derive(Debug)]
pub(super) struct Prompts {
    tokenizer: Tokenizer,
    number: u32,
}

impl Prompts {
    pub(super) fn new(model: &Path) -> Result<Self> {
        Ok(Self { tokenizer: Artifacts::load(model)?.tokenizer()?, number: 10_000 })
    }

    /// Returns the ids of a new prompt.
    pub(super) fn take(&mut self) -> Result<Vec<u32>> {
        self.number += 1;
        let text = format!(
            "<|im_start|>user\nHouse {} has a garden. Write a long story about it.<|im_end|>\n<|im_start|>assistant\n",
            self.number
        );
        Ok(self.tokenizer.encode(&text, false)?)
    }
}
