//! SentencePiece vocabularies in GGUF headers: compared with transformers on the same vocabularies,
//! and errors for invalid vocabularies.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::Value;
use tandem_model_files::tokenizer::{EncodeOptions, Tokenizer, TokenizerError};
use tandem_tests::error_texts;
use tandem_tests::gguf_file::File;
use tandem_tests::repository;
use tandem_tests::sentencepiece::*;
use tandem_tests::tokenizers::{built, joined, refused};
use tandem_tests::tokenizers::{classic, literal_ids, texts};

/// Longer than any test takes that does not hang.
const WAIT_LIMIT: Duration = Duration::from_secs(300);

// ---- against transformers ----

#[test]
fn texts_have_the_ids_and_offsets_of_transformers() {
    let options = EncodeOptions { offsets: true, ..EncodeOptions::default() };
    for_each_case(|Vocabulary { name, .. }, tokenizer, text, case| {
        assert_eq!(tokenizer.encode(text, false).expect("text"), case.ids, "{name} {text:?}");
        let encoding = tokenizer.encode_with(text, &options).expect("text");
        assert_eq!(encoding.ids, case.ids, "{name} {text:?}, by the library");
        let offsets: Vec<usize> =
            encoding.offsets.expect("offsets").iter().flat_map(|range| [range.start, range.end]).collect();
        assert_eq!(offsets, case.offsets, "{name} {text:?}");
    });
}

#[test]
fn decoded_text_and_joined_bytes_match_transformers() {
    for_each_case(|Vocabulary { name, .. }, tokenizer, text, case| {
        let decoded = case.decoded.as_deref().unwrap_or(text);
        assert_eq!(tokenizer.decode(&case.ids, false).expect("known ids"), decoded, "{name} {text:?}");
        let bytes = joined(tokenizer, &case.ids);
        let whole = bytes.strip_prefix(b" ").filter(|_| name != "gemma").unwrap_or(&bytes);
        assert_eq!(whole, decoded.as_bytes(), "{name} {text:?}");
    });
}

#[test]
fn text_begins_with_bos_unless_add_bos_token_is_false() {
    let vocabulary = Vocabulary::named("llama");
    let encode = |file: File| built(&file).encode("the", true).expect("text");
    assert_eq!(encode(vocabulary.file())[..1], [1]);
    assert_eq!(encode(vocabulary.file().bool("tokenizer.ggml.add_eos_token", true))[2..], [2]);
    assert_eq!(encode(vocabulary.file().bool("tokenizer.ggml.add_bos_token", false)).len(), 1);
    assert_eq!(built(&vocabulary.file()).encode("<s>the", true).expect("text").len(), 2);
}

#[test]
fn only_control_and_unknown_tokens_are_special() {
    let specials = |name: &str| built(&Vocabulary::named(name).file()).special_ids();
    assert_eq!(specials("llama"), [0, 1, 2]);
    assert_eq!(specials("mistral"), [0, 1, 2, 3, 4]);
    assert_eq!(specials("gemma"), [0, 1, 2, 3, 4, 5]);
    let gemma = built(&Vocabulary::named("gemma").file());
    let table = gemma.token_to_id("<table>").expect("it is there");
    assert_eq!((gemma.is_special(table), gemma.token_bytes(table)), (false, Some(&b"<table>"[..])));
    assert_eq!(gemma.token_bytes(gemma.token_to_id("▁▁▁").expect("it is there")), Some(&b"   "[..]));
    assert_eq!(gemma.token_bytes(gemma.token_to_id("<0x0A>").expect("it is there")), Some(&b"\n"[..]));
}

#[test]
fn control_tokens_in_literal_text_stay_text() {
    for_each_case(|vocabulary, tokenizer, text, _| {
        let all = Some(0..text.len()).filter(|all| !all.is_empty());
        let ids = literal_ids(tokenizer, text, all.as_slice());
        let special: Vec<_> = ids.iter().filter(|&&id| tokenizer.is_special(id)).collect();
        assert!(special.is_empty(), "{} {text:?}: {special:?}", vocabulary.name);
        let expected = text.replace('▁', " ");
        assert_eq!(joined(tokenizer, &ids), expected.as_bytes(), "{} {text:?}", vocabulary.name);
    });
}

/// If a user-defined run cannot be merged from shorter runs, the encoder finds the run directly in
/// the text.
#[test]
fn user_defined_space_run_is_matched_without_merges() {
    let mut vocabulary = Vocabulary::named("gemma");
    let lone = vocabulary.tokens.iter().position(|token| token == "      ").expect("six");
    let shorter = vocabulary.tokens.iter().position(|token| token == "    ").expect("four");
    vocabulary.tokens[shorter] = "<four>".to_owned();
    let tokenizer = built(&vocabulary.file());
    let ids = tokenizer.encode("a      b", false).expect("text");
    assert_eq!((ids[1], ids.len()), (lone as u32, 3));
    assert_eq!(tokenizer.decode(&ids, false).ok().as_deref(), Some("a      b"));
}

// ---- against real vocabularies ----

/// Returns a real `tokenizer.json` in the form that a converter from SentencePiece writes. The
/// order of its merges gives the scores.
fn converted(name: &str, architecture: &str, bos: u32, is_user: impl Fn(&Value) -> bool) -> (Tokenizer, Vocabulary) {
    let path = repository().join(".tandem/tokenizers").join(name).join("tokenizer.json");
    let bytes = std::fs::read(path).expect("`cargo xtask test` fetches it");
    let file: Value = serde_json::from_slice(&bytes).expect("JSON");
    let tokens = file["model"]["vocab"].as_object().expect("a vocabulary");
    let added = file["added_tokens"].as_array().expect("a list");
    let size = tokens.len() + added.iter().filter(|token| !tokens.contains_key(text(&token["content"]))).count();
    let mut vocabulary = Vocabulary {
        name: name.to_owned(),
        architecture: architecture.to_owned(),
        add_space_prefix: Some(architecture == "llama"),
        bos,
        eos: 1,
        unknown: tokens["<unk>"].as_u64().expect("an id") as u32,
        tokens: vec![String::new(); size],
        scores: vec![-1e9; size],
        types: vec![NORMAL; size],
        cases: Vec::new(),
    };
    for (token, id) in tokens {
        vocabulary.put(id, token, if is_byte(token) { BYTE } else { NORMAL });
    }
    for (rank, merge) in file["model"]["merges"].as_array().expect("merges").iter().enumerate().rev() {
        let whole = merge
            .as_str()
            .map_or_else(|| [0, 1].map(|half| text(&merge[half])).concat(), |pair| pair.replacen(' ', "", 1));
        vocabulary.scores[tokens[&whole].as_u64().expect("an id") as usize] = -(rank as f32);
    }
    for token in added {
        let content = text(&token["content"]);
        if is_user(token) {
            vocabulary.put(&token["id"], &content.replace('▁', " "), USER_DEFINED)
        } else {
            vocabulary.put(&token["id"], content, if content == "<unk>" { UNKNOWN } else { CONTROL })
        }
    }
    (Tokenizer::from_json(&bytes).expect("a valid file"), vocabulary)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn is_byte(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x")
}

fn fragments() -> BoxedStrategy<String> {
    let nasty = [
        " ",
        "  ",
        "\n",
        "\t",
        "\r\n",
        "<s>",
        "</s>",
        "<bos>",
        "<start_of_turn>",
        "<unused7>",
        "<table>",
        "[INST]",
        "e\u{301}",
        "漢字",
        "한국어",
        "👩\u{200D}💻",
        "\0",
        "\u{10FFFF}",
        "<0x0A>",
        "12",
        "x",
        "The ",
        "'s",
        "==",
        "--",
        "<",
        ">",
    ]; // No ▁: for an added token, transformers searches the text for ▁ and not for spaces.
    prop_oneof![
        4 => prop::sample::select(nasty.map(str::to_owned).to_vec()),
        1 => any::<char>().prop_map(String::from),
        1 => "[a-z]{1,12} ?",
    ]
    .boxed()
}

fn assert_converted(json: &Tokenizer, vocabulary: &Vocabulary) {
    let gguf = built(&vocabulary.file());
    json.prepare();
    let mut runner = TestRunner::new(Cases { cases: 300, failure_persistence: None, ..Cases::default() });
    let result = runner.run(&texts(fragments()), |(text, literal)| {
        let expected = json.encode(&text, true).expect("text");
        prop_assert_eq!(gguf.encode(&text, true).expect("text"), expected.as_slice(), "{:?}", text);
        prop_assert_eq!(classic(&gguf, &text, &literal), classic(json, &text, &literal), "{:?} {:?}", text, literal);
        prop_assert_eq!(gguf.decode(&expected, true).ok(), json.decode(&expected, true).ok());
        Ok(())
    });
    assert!(result.is_ok(), "{}: {}", vocabulary.name, result.expect_err("a failure"));
    assert_eq!(gguf.vocab_size(), json.vocab_size());
    assert!((0..gguf.vocab_size() as u32).all(|id| gguf.token_bytes(id) == json.token_bytes(id)));
}

#[test]
fn llama_gguf_vocabulary_gives_the_ids_of_tokenizer_json() {
    let (json, vocabulary) = converted("llama2", "llama", 1, |_| false);
    assert_converted(&json, &vocabulary);
}

#[test]
fn gemma_gguf_vocabulary_gives_the_ids_of_tokenizer_json() {
    let (json, vocabulary) = converted("gemma3", "gemma3", 2, |token| token["special"] == false);
    assert_converted(&json, &vocabulary);
}

// ---- invalid files ----

/// Returns a valid vocabulary of two letters.
fn small() -> Vocabulary {
    let tokens = ["<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab"];
    Vocabulary {
        name: "small".to_owned(),
        architecture: "llama".to_owned(),
        add_space_prefix: None,
        bos: 1,
        eos: 2,
        unknown: 0,
        tokens: tokens.map(str::to_owned).to_vec(),
        scores: vec![0.0, 0.0, 0.0, -9.0, -8.0, -7.0, -1.0, -2.0],
        types: vec![UNKNOWN, CONTROL, CONTROL, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL],
        cases: Vec::new(),
    }
}

fn refused_with(change: impl FnOnce(&mut Vocabulary), case: &str) {
    let mut vocabulary = small();
    change(&mut vocabulary);
    refused(&vocabulary.file(), case);
}

#[test]
fn text_outside_the_vocabulary_is_the_unknown_token() {
    let tokenizer = built(&small().file());
    assert_eq!(tokenizer.encode("ab aé€b", false).ok(), Some(vec![7, 3, 4, 0, 5]));
    assert_eq!(tokenizer.decode(&[7, 3, 4, 5], false).ok().as_deref(), Some("ab ab"));
}

#[test]
fn invalid_vocabulary_is_rejected_by_key() {
    refused(
        &File::new().text("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", &["a"]),
        "sentencepiece/no-scores",
    );
    refused_with(|all| all.scores.truncate(7), "sentencepiece/scores");
    refused_with(|all| all.types.truncate(7), "sentencepiece/types");
    refused_with(|all| all.scores[4] = f32::NAN, "sentencepiece/nan");
    refused_with(|all| all.scores[4] = f32::INFINITY, "sentencepiece/infinity");
    refused_with(|all| all.unknown = 8, "sentencepiece/unknown-id");
    refused_with(|all| all.bos = 8, "sentencepiece/bos-id");
    refused_with(|all| all.tokens[4] = "b".to_owned(), "sentencepiece/repeated");
    let key = "tokenizer.ggml.remove_extra_whitespaces";
    refused(&small().file().bool(key, true), "sentencepiece/whitespace");
    assert_eq!(built(&small().file().bool(key, false)).vocab_size(), 8);
}

#[test]
fn only_a_vocabulary_with_every_byte_needs_no_unknown_token() {
    let file = |tokens: &[String]| {
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        File::new()
            .text("tokenizer.ggml.model", "llama")
            .strings("tokenizer.ggml.tokens", &tokens)
            .f32s("tokenizer.ggml.scores", &vec![0.0; tokens.len()])
            .bool("tokenizer.ggml.add_bos_token", false)
    };
    let bytes: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    assert_eq!(built(&file(&bytes)).encode("é", false).ok(), Some(vec![0xE2, 0x96, 0x81, 0xC3, 0xA9]));
    refused(&file(&bytes[1..]), "sentencepiece/no-unknown");
}

/// Returns a vocabulary with runs of one letter. A run of n letters has n ways of merging.
fn runs(count: usize) -> Vocabulary {
    let mut vocabulary = small();
    vocabulary.tokens.extend((2..count).map(|length| "a".repeat(length)));
    let size = vocabulary.tokens.len();
    vocabulary.scores.resize(size, -3.0);
    vocabulary.types.resize(size, NORMAL);
    vocabulary
}

/// Looking up every split of the longest tokens would take hours.
#[test]
fn merges_of_nested_tokens_are_bounded() {
    assert_eq!(built(&runs(64).file()).encode(&"a".repeat(63), false).map(|ids| ids.len()).ok(), Some(2));
    let error = Tokenizer::from_gguf(&runs(2000).file().open().expect("a valid file")).expect_err("too many merges");
    assert!(matches!(error, TokenizerError::Merges { .. }), "{error}");
    error_texts::check("sentencepiece/merges", error);
    let mut long = small();
    long.tokens[6] = "a".repeat(4 << 20);
    long.tokens[7] = "b".repeat(4 << 20);
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(Tokenizer::from_gguf(&long.file().open().expect("a valid file")).is_ok()));
    assert_eq!(ended.recv_timeout(WAIT_LIMIT), Ok(true));
}

#[test]
fn digest_changes_only_with_data_that_affects_ids() {
    let digest = |file: &File| built(file).sha256().to_owned();
    let one = digest(&small().file());
    assert_eq!(one, digest(&small().file().text("general.name", "other")));
    let mut others = [small(), small(), small(), small(), small()];
    others[0].scores[7] = -0.5;
    others[1].types[5] = CONTROL;
    others[2].add_space_prefix = Some(false);
    others[3].eos = 4;
    others[4].architecture = "phi3".to_owned();
    for other in &others {
        assert_ne!(one, digest(&other.file()), "{other:?}");
    }
}
