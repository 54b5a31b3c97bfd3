//! Prompts of random tokens, new every time.

use std::path::Path;

use anyhow::{Context, Result};
use tandem_common::artifacts::gguf::Gguf;

/// Ids of a vocabulary, by splitmix64. Every run of the program gets the same ones.
#[derive(Debug)]
pub(super) struct Random {
    state: u64,
    vocabulary: u64,
}

impl Random {
    pub(super) fn new(model: &Path) -> Result<Self> {
        let gguf = Gguf::open(model)?;
        let tokens: &[String] = gguf.get("tokenizer.ggml.tokens")?;
        let vocabulary = u64::try_from(tokens.len()).ok().filter(|&count| count > 0).context("no vocabulary")?;
        Ok(Self { state: 1, vocabulary })
    }

    /// Prompts of one length.
    pub(super) fn prompts(&mut self, count: usize, length: usize) -> Vec<Vec<u32>> {
        (0..count).map(|_| self.prompt(length)).collect()
    }

    pub(super) fn prompt(&mut self, length: usize) -> Vec<u32> {
        (0..length).map(|_| (self.next() % self.vocabulary) as u32).collect()
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
