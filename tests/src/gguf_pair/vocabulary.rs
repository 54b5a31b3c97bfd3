//! The tokenizer and the chat template in a GGUF file.

use std::collections::HashMap;

use serde_json::Value;

use super::gguf_model::{Entry, GgufModel};
use super::hf_folder::HfFolder;

/// Token types, as llama.cpp numbers them.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// Adds both.
pub(super) fn add(folder: &HfFolder, model: &mut GgufModel) {
    let tokens = tokens(&folder.tokenizer);
    model.set("tokenizer.ggml.token_type", Entry::I32s(tokens.iter().map(|(_, kind)| *kind).collect()));
    let texts: Vec<String> = tokens.into_iter().map(|(text, _)| text).collect();
    let bpe = &folder.tokenizer["model"];
    if bpe["byte_fallback"] == true {
        model.set("tokenizer.ggml.model", Entry::Text("llama".to_owned()));
        model.set("tokenizer.ggml.scores", Entry::F32s(scores(&texts, bpe)));
        model.set("tokenizer.ggml.add_space_prefix", Entry::Bool(false));
    } else {
        model.set("tokenizer.ggml.model", Entry::Text("gpt2".to_owned()));
        model.set("tokenizer.ggml.pre", Entry::Text("gpt-2".to_owned()));
        let merges = merges(bpe).into_iter().map(|[left, right]| format!("{left} {right}")).collect();
        model.set("tokenizer.ggml.merges", Entry::Texts(merges));
    }
    model.set("tokenizer.ggml.add_bos_token", Entry::Bool(false));
    add_special(folder, &texts, model);
    model.set("tokenizer.ggml.tokens", Entry::Texts(texts));
    model.set("tokenizer.chat_template", Entry::Text(folder.template.clone()));
}

/// Returns the tokens and their types.
fn tokens(tokenizer: &Value) -> Vec<(String, i32)> {
    let vocabulary = tokenizer["model"]["vocab"].as_object().expect("a vocabulary");
    let is_byte = |text: &str| text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
    let kind = |text: &str| if is_byte(text) { BYTE } else { NORMAL };
    let mut by_id: HashMap<u64, (String, i32)> =
        vocabulary.iter().map(|(text, id)| (id.as_u64().expect("an id"), (text.clone(), kind(text)))).collect();
    for token in tokenizer["added_tokens"].as_array().expect("a list") {
        let kind = if token["special"] == true { CONTROL } else { USER_DEFINED };
        let text = token["content"].as_str().expect("a text").to_owned();
        by_id.insert(token["id"].as_u64().expect("an id"), (text, kind));
    }
    (0..by_id.len() as u64).map(|id| by_id.remove(&id).expect("ids without gaps")).collect()
}

/// Returns the merges, the first one first.
fn merges(bpe: &Value) -> Vec<[String; 2]> {
    serde_json::from_value(bpe["merges"].clone()).expect("pairs")
}

/// Returns scores that rank tokens as their merges.
fn scores(tokens: &[String], bpe: &Value) -> Vec<f32> {
    let merged: Vec<String> = merges(bpe).iter().map(|pair| pair.concat()).collect();
    let rank = |token: &String| merged.iter().position(|merged| merged == token).unwrap_or(merged.len());
    tokens.iter().map(|token| -(rank(token) as f32)).collect()
}

/// Adds the ids of the tokens that begin and end a text.
fn add_special(folder: &HfFolder, tokens: &[String], model: &mut GgufModel) {
    for (name, key) in [("bos_token", "bos"), ("eos_token", "eos")] {
        let Some(text) = folder.tokenizer_config[name].as_str() else { continue };
        let id = tokens.iter().position(|token| token == text).expect("a token");
        model.set(&format!("tokenizer.ggml.{key}_token_id"), Entry::U32(id as u32));
    }
    if let [_, eot, ..] = folder.generation["eos_token_id"].as_array().map_or(&[][..], Vec::as_slice) {
        model.set("tokenizer.ggml.eot_token_id", Entry::U32(eot.as_u64().expect("an id") as u32));
    }
}
