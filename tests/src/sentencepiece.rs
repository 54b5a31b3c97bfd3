//! The goldens of SentencePiece vocabularies, and the GGUF headers made from them.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;
use tandem_model_files::tokenizer::Tokenizer;

use crate::files::repository;
use crate::gguf_file::File;
use crate::tokenizers::built;

pub const NORMAL: i32 = 1;
pub const UNKNOWN: i32 = 2;
pub const CONTROL: i32 = 3;
pub const USER_DEFINED: i32 = 4;
pub const BYTE: i32 = 6;

/// The tokenizer's part of a GGUF header.
#[derive(Debug, Clone, Deserialize)]
pub struct Vocabulary {
    pub name: String,
    pub architecture: String,
    pub add_space_prefix: Option<bool>,
    pub bos: u32,
    pub eos: u32,
    pub unknown: u32,
    pub tokens: Vec<String>,
    pub scores: Vec<f32>,
    pub types: Vec<i32>,
    #[serde(default)]
    pub cases: Vec<Case>,
}

/// transformers' result for a text.
#[derive(Debug, Clone, Deserialize)]
pub struct Case {
    pub ids: Vec<u32>,
    /// Starts and ends of the tokens, alternating.
    pub offsets: Vec<usize>,
    /// The decoded text, if it differs from the text.
    pub decoded: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Goldens {
    pub texts: Vec<String>,
    pub vocabularies: Vec<Vocabulary>,
}

pub static GOLDENS: LazyLock<Goldens> = LazyLock::new(|| {
    let text = std::fs::read_to_string(repository().join("tests/golden/sentencepiece.json"))
        .expect("the goldens are readable");
    serde_json::from_str(&text).expect("the goldens are JSON")
});

impl Vocabulary {
    /// Sets a token by its id.
    pub fn put(&mut self, id: &Value, token: &str, kind: i32) {
        let id = id.as_u64().expect("an id is a number") as usize;
        self.tokens[id] = token.to_owned();
        self.types[id] = kind;
        if kind == USER_DEFINED {
            self.scores[id] = -1000.0;
        }
    }

    pub fn named(name: &str) -> Self {
        GOLDENS
            .vocabularies
            .iter()
            .find(|vocabulary| vocabulary.name == name)
            .expect("the vocabulary has goldens")
            .clone()
    }

    pub fn file(&self) -> File {
        let tokens: Vec<&str> = self.tokens.iter().map(String::as_str).collect();
        let file = File::new()
            .text("general.architecture", &self.architecture)
            .text("tokenizer.ggml.model", "llama")
            .strings("tokenizer.ggml.tokens", &tokens)
            .f32s("tokenizer.ggml.scores", &self.scores)
            .i32s("tokenizer.ggml.token_type", &self.types)
            .u32("tokenizer.ggml.bos_token_id", self.bos)
            .u32("tokenizer.ggml.eos_token_id", self.eos)
            .u32("tokenizer.ggml.unknown_token_id", self.unknown);
        match self.add_space_prefix {
            Some(is_wanted) => file.bool("tokenizer.ggml.add_space_prefix", is_wanted),
            None => file,
        }
    }

    /// Calls `check` for every text of the goldens with transformers' result.
    pub fn for_each_case(&self, check: impl Fn(&Tokenizer, &str, &Case)) {
        let tokenizer = built(&self.file());
        assert_eq!(self.cases.len(), GOLDENS.texts.len());
        GOLDENS.texts.iter().zip(&self.cases).for_each(|(text, case)| check(&tokenizer, text, case));
    }
}

pub fn for_each_case(check: impl Fn(&Vocabulary, &Tokenizer, &str, &Case)) {
    for vocabulary in &GOLDENS.vocabularies {
        vocabulary.for_each_case(|tokenizer, text, case| check(vocabulary, tokenizer, text, case));
    }
}
