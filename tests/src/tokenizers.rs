//! Creates tokenizers for tests, and compares the classic and the fast encoder.

use std::ops::Range;

use proptest::prelude::*;
use serde_json::{Value, json};
use tandem_model_files::tokenizer::{EncodeOptions, Tokenizer};

use crate::error_texts;
use crate::gguf_file::File;

/// Returns the goldens of the default model, made with transformers.
pub fn goldens() -> Value {
    serde_json::from_str(include_str!("../golden/smollm2.json")).expect("the goldens are JSON")
}

/// Reads a list of ids of a golden file.
pub fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("a list of ids")
}

pub fn joined(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|&id| tokenizer.token_bytes(id).expect("a known id")).copied().collect()
}

pub fn built(file: &File) -> Tokenizer {
    let tokenizer = Tokenizer::from_gguf(&file.open().expect("a valid file")).expect("a valid vocabulary");
    tokenizer.prepare();
    tokenizer
}

#[track_caller]
pub fn refused(file: &File, case: &str) {
    let error = Tokenizer::from_gguf(&file.open().expect("a valid file")).expect_err(case);
    error_texts::check(case, error);
}

pub fn plain(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, false).expect("the text can be encoded")
}

/// Returns the classic encoder's ids.
pub fn classic(tokenizer: &Tokenizer, text: &str, literal: &[Range<usize>]) -> Vec<u32> {
    let options = EncodeOptions { literal, ..EncodeOptions::default() };
    tokenizer.encode_classic(text, &options).expect("the text can be encoded").ids
}

/// Returns the ids of a text in which these ranges are literal.
pub fn literal_ids(tokenizer: &Tokenizer, text: &str, literal: &[Range<usize>]) -> Vec<u32> {
    let options = EncodeOptions { literal, ..EncodeOptions::default() };
    tokenizer.encode_with(text, &options).expect("the text can be encoded").ids
}

/// Generates a text with its literal ranges in ascending order.
pub fn texts(fragment: BoxedStrategy<String>) -> impl Strategy<Value = (String, Vec<Range<usize>>)> {
    let parts = prop::collection::vec((fragment, 0..6u8, 1..40usize), 0..24);
    parts.prop_map(|parts| {
        let (mut text, mut literal) = (String::new(), Vec::new());
        for (part, kind, times) in parts {
            let start = text.len();
            text += &part.repeat(if kind == 0 { times } else { 1 });
            if kind == 1 {
                literal.push(start..text.len());
            }
        }
        (text, literal)
    })
}

/// Checks that both encoders agree on a text: with an empty cache, with the text cached, and with
/// literal ranges.
pub fn agree(tokenizer: &Tokenizer, text: &str, literal: &[Range<usize>]) {
    let expected = classic(tokenizer, text, &[]);
    assert_eq!(plain(tokenizer, text), expected, "{text:?}");
    assert_eq!(plain(tokenizer, text), expected, "{text:?}, remembered");
    assert_eq!(literal_ids(tokenizer, text, literal), classic(tokenizer, text, literal), "{text:?} {literal:?}");
    let options = EncodeOptions { literal, offsets: true, ..EncodeOptions::default() };
    let located = tokenizer.encode_with(text, &options).expect("the text can be encoded");
    assert_eq!(located, tokenizer.encode_classic(text, &options).expect("text"), "{text:?} {literal:?}");
}

pub fn bpe(tokens: &[&str]) -> Value {
    let vocab: serde_json::Map<_, _> =
        tokens.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), json!(id))).collect();
    json!({"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": true, "unk_token": null, "dropout": null})
}

/// Returns a byte-level tokenizer.json: ids 0 to 255 are the bytes, then the `longer` tokens, then
/// the `added` tokens. Each added token has a flag that makes it special.
pub fn byte_level(longer: &[&[u8]], added: &[(&str, bool)]) -> Tokenizer {
    let bytes: Vec<String> =
        (0..=255u8).map(|byte| spelled(&[byte])).chain(longer.iter().map(|token| spelled(token))).collect();
    let tokens: Vec<&str> = bytes.iter().map(String::as_str).collect();
    let first = tokens.len() as u32;
    let added: Vec<_> = (first..).zip(added).map(|(id, (text, special))| (id, *text, *special)).collect();
    let decoder = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    Tokenizer::from_json(&json_tokenizer(bpe(&tokens), decoder, &added)).expect("a valid tokenizer.json")
}

/// Spells bytes in the byte-level alphabet. Printable Latin-1 bytes are spelled as themselves, and
/// the other bytes as U+0100 onwards, in order.
pub fn spelled(bytes: &[u8]) -> String {
    let printable = |byte: u8| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let others: Vec<u8> = (0..=255).filter(|&byte| !printable(byte)).collect();
    let char_of = |byte: &u8| match others.iter().position(|other| other == byte) {
        Some(at) => char::from_u32(0x100 + at as u32).expect("a character"),
        None => char::from(*byte),
    };
    bytes.iter().map(char_of).collect()
}

/// Returns a tokenizer.json with this model, decoder and added tokens.
pub fn json_tokenizer(model: Value, decoder: Value, added: &[(u32, &str, bool)]) -> Vec<u8> {
    let added: Vec<_> = added
        .iter()
        .map(|(id, content, special)| {
            json!({"id": id, "content": content, "special": special, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false})
        })
        .collect();
    let file = json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": decoder,
        "model": model,
    });
    file.to_string().into_bytes()
}
