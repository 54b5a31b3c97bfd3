//! Prompts of random tokens, new for each call.

use std::path::Path;

use anyhow::{Context, Result};
use tandem_model_files::gguf::Gguf;

use crate::numbers::Numbers;

/// Random ids of a vocabulary, the same in every run of the program.
#[derive(Debug)]
pub(super) struct Random {
    numbers: Numbers,
    vocabulary: u64,
}

impl Random {
    pub(super) fn new(model: &Path) -> Result<Self> {
        let gguf = Gguf::open(model)?;
        let tokens: &[String] = gguf.get("tokenizer.ggml.tokens")?;
        let vocabulary = u64::try_from(tokens.len()).ok().filter(|&count| count > 0).context("no vocabulary")?;
        Ok(Self { numbers: Numbers::new(), vocabulary })
    }

    /// Returns prompts of equal length.
    pub(super) fn prompts(&mut self, count: usize, length: usize) -> Vec<Vec<u32>> {
        (0..count).map(|_| self.prompt(length)).collect()
    }

    pub(super) fn prompt(&mut self, length: usize) -> Vec<u32> {
        (0..length).map(|_| (self.numbers.next() % self.vocabulary) as u32).collect()
    }
}
