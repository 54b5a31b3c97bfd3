//! The pre-tokenizers that a GGUF file names, compared with the library on the rules of the models'
//! own files. `tests/golden/make_pre_tokenizers.py` makes the ids.

use std::fs;

use serde_json::Value;
use tandem_model_files::tokenizer::{Tokenizer, TokenizerError};
use tandem_tests::gguf_file::File;
use tandem_tests::repository;
use tandem_tests::tokenizers::{built, classic, ids, plain};

/// Names of llama.cpp whose rules are not supported. Most belong to few models or to encoders.
const REFUSED: [&str; 28] = [
    "minicpm5",
    "spark2_5",
    "youtu",
    "falcon",
    "jais-2",
    "gemma4",
    "granite-embed-multi-311m",
    "sarvam-moe",
    "jina-v1-en",
    "jina-v2-code",
    "roberta-bpe",
    "whitespace",
    "poro-chat",
    "viking",
    "bloom",
    "gpt3-finnish",
    "exaone-moe",
    "chameleon",
    "granite-embed-multi-97m",
    "tiny_aya",
    "cohere2moe",
    "superbpe",
    "bailingmoe",
    "bailingmoe2",
    "llada-moe",
    "ufakzeka",
    "afmoe",
    "laguna",
];

fn golden() -> Value {
    let path = repository().join("tests/golden/pre_tokenizers.json");
    serde_json::from_str(&fs::read_to_string(path).expect("the golden file")).expect("JSON")
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

fn file(golden: &Value, pre: &str) -> File {
    let (tokens, merges) = (strings(&golden["tokens"]), strings(&golden["merges"]));
    File::new()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", pre)
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", &merges)
        .bool("tokenizer.ggml.add_bos_token", false)
}

#[test]
fn every_name_has_the_ids_of_its_models_own_rule() {
    let golden = golden();
    let texts = strings(&golden["texts"]);
    for rule in golden["rules"].as_array().expect("a list") {
        for name in strings(&rule["names"]) {
            let tokenizer = built(&file(&golden, name));
            for (text, expected) in texts.iter().zip(rule["ids"].as_array().expect("a list")) {
                assert_eq!(plain(&tokenizer, text), ids(expected), "{name} {text:?}");
                assert_eq!(classic(&tokenizer, text, &[]), ids(expected), "{name} {text:?}");
            }
        }
    }
}

#[test]
fn a_name_without_a_rule_is_refused() {
    let golden = golden();
    for name in REFUSED {
        let error = Tokenizer::from_gguf(&file(&golden, name).open().expect("a valid file")).expect_err(name);
        assert!(matches!(error, TokenizerError::PreTokenizer { .. }), "{name}: {error}");
    }
}
