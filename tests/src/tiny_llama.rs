//! A GGUF file with a tiny Llama.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::random::scramble;

/// A Llama with E 48, H 4, K 2, D 16, F 80, V 40, two layers and an untied head. Its weights are
/// scrambled numbers in f32.
#[derive(Debug)]
pub struct TinyLlama {
    strings: BTreeMap<&'static str, String>,
    integers: BTreeMap<&'static str, u32>,
    floats: BTreeMap<&'static str, f32>,
    /// Name, dimensions outermost first, type.
    tensors: Vec<(String, Vec<u64>, u32)>,
}

/// The type of 32-bit floats in a GGUF file.
pub const F32: u32 = 0;
/// The type of 8-bit integers in a GGUF file.
pub const I8: u32 = 24;
/// As F32, with the numbers of the embedding table.
pub const EMBEDDINGS: u32 = 1000;
/// The number of tokens.
pub const VOCABULARY: u64 = 40;

impl Default for TinyLlama {
    fn default() -> Self {
        Self::new()
    }
}

impl TinyLlama {
    /// Creates the model.
    #[must_use]
    pub fn new() -> Self {
        let strings =
            [("general.architecture", "llama"), ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "smollm")];
        let integers = [
            ("llama.embedding_length", 48),
            ("llama.feed_forward_length", 80),
            ("llama.block_count", 2),
            ("llama.attention.head_count", 4),
            ("llama.attention.head_count_kv", 2),
            ("llama.attention.key_length", 16),
            ("llama.rope.dimension_count", 16),
            ("llama.context_length", 4096),
        ];
        let floats = [("llama.attention.layer_norm_rms_epsilon", 1e-5), ("llama.rope.freq_base", 500.0)];
        let mut tensors = vec![tensor("token_embd", &[VOCABULARY, 48])];
        for layer in 0..2 {
            let parts: [(&str, &[u64]); 9] = [
                ("attn_norm", &[48]),
                ("attn_q", &[64, 48]),
                ("attn_k", &[32, 48]),
                ("attn_v", &[32, 48]),
                ("attn_output", &[48, 64]),
                ("ffn_norm", &[48]),
                ("ffn_gate", &[80, 48]),
                ("ffn_up", &[80, 48]),
                ("ffn_down", &[48, 80]),
            ];
            tensors.extend(parts.map(|(part, dims)| tensor(&format!("blk.{layer}.{part}"), dims)));
        }
        tensors.extend([tensor("output_norm", &[48]), tensor("output", &[VOCABULARY, 48])]);
        Self {
            strings: strings.map(|(key, value)| (key, value.to_owned())).into(),
            integers: integers.into(),
            floats: floats.into(),
            tensors,
        }
    }

    /// Sets an integer of the header.
    #[must_use]
    pub fn integer(mut self, key: &'static str, value: u32) -> Self {
        self.integers.insert(key, value);
        self
    }

    /// Sets a string of the header.
    #[must_use]
    pub fn string(mut self, key: &'static str, value: &str) -> Self {
        self.strings.insert(key, value.to_owned());
        self
    }

    /// Removes an integer of the header, or a tensor.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.integers.remove(key);
        self.tensors.retain(|(name, ..)| name != key);
        self
    }

    /// Adds a tensor, in place of one of this name.
    #[must_use]
    pub fn with(mut self, name: &str, dims: &[u64], dtype: u32) -> Self {
        self.tensors.retain(|(known, ..)| known != name);
        self.tensors.push((name.to_owned(), dims.to_vec(), dtype));
        self
    }

    /// Writes the model into a folder, and returns the file.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("tiny.gguf");
        std::fs::write(&path, self.bytes()).expect("a file");
        path
    }

    /// Returns the file in the layout of the GGUF specification, version 3.
    fn bytes(&self) -> Vec<u8> {
        let entries = self.strings.len() + self.integers.len() + self.floats.len() + 3;
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((entries as u64).to_le_bytes());
        self.strings.iter().for_each(|(key, value)| entry(&mut out, key, 8, &text(value)));
        self.integers.iter().for_each(|(key, value)| entry(&mut out, key, 4, &value.to_le_bytes()));
        self.floats.iter().for_each(|(key, value)| entry(&mut out, key, 6, &value.to_le_bytes()));
        write_vocabulary(&mut out);
        self.write_tensors(&mut out);
        out
    }

    fn write_tensors(&self, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        for (index, (name, dims, dtype)) in self.tensors.iter().enumerate() {
            out.extend(text(name));
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().rev().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(if *dtype == EMBEDDINGS { F32 } else { *dtype }.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            let count = dims.iter().product();
            match *dtype {
                I8 => data.extend(vec![0; count as usize]),
                EMBEDDINGS => data.extend((0..count).flat_map(|i| value(0, i, dims.len()).to_le_bytes())),
                _ => data.extend((0..count).flat_map(|i| value(index, i, dims.len()).to_le_bytes())),
            }
            data.resize(data.len().next_multiple_of(32), 0);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(data);
    }
}

fn tensor(name: &str, dims: &[u64]) -> (String, Vec<u64>, u32) {
    (format!("{name}.weight"), dims.to_vec(), F32)
}

/// Returns element `i` of the tensor at `index`: from -0.25 to 0.25, and around 1 in a vector.
fn value(index: usize, i: u64, rank: usize) -> f32 {
    let unit = (scramble(((index as u64) << 32) + i) >> 40) as f64 / f64::from(1 << 24);
    ((unit - 0.5) * 0.5 + if rank == 1 { 1.0 } else { 0.0 }) as f32
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn entry(out: &mut Vec<u8>, key: &str, kind: u32, value: &[u8]) {
    out.extend(text(key));
    out.extend(kind.to_le_bytes());
    out.extend(value);
}

/// Writes a vocabulary of one character per token, without merges. Token 39 is a control token, and
/// the eos.
fn write_vocabulary(out: &mut Vec<u8>) {
    let array = |kind: u32, items: Vec<Vec<u8>>| {
        let head = [kind.to_le_bytes().as_slice(), &(items.len() as u64).to_le_bytes()].concat();
        [head, items.concat()].concat()
    };
    let tokens = ('A'..='g').take(39).map(|token| text(&token.to_string())).chain([text("<eos>")]).collect();
    let kinds = (0..VOCABULARY).map(|id| if id == 39 { 3_i32 } else { 1 }.to_le_bytes().to_vec()).collect();
    entry(out, "tokenizer.ggml.tokens", 9, &array(8, tokens));
    entry(out, "tokenizer.ggml.token_type", 9, &array(5, kinds));
    entry(out, "tokenizer.ggml.merges", 9, &array(8, Vec::new()));
}
