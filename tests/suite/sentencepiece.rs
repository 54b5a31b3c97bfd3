//! SentencePiece vocabularies in GGUF headers: against what transformers makes of the same ones, and that a lying one costs
//! an error and nothing else.

use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use gen_svc::engine::{Config, Engine, Event};
use gen_svc::request::{GenerateRequest, Input, Returns, SamplingOptions, StopOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde::Deserialize;
use serde_json::Value;
use tandem_model_files::tokenizer::{EncodeOptions, Tokenizer, TokenizerError};
use tandem_tests::repository;

use crate::gguf::File;
use crate::real_tokenizers::{classic, literal_ids, texts};
use crate::tokenizer::{built, joined, refused};

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// The part of a header that makes a tokenizer.
#[derive(Debug, Clone, Deserialize)]
struct Vocabulary {
    name: String,
    architecture: String,
    add_space_prefix: Option<bool>,
    bos: u32,
    eos: u32,
    unknown: u32,
    tokens: Vec<String>,
    scores: Vec<f32>,
    types: Vec<i32>,
    #[serde(default)]
    cases: Vec<Case>,
}

/// What transformers makes of a text.
#[derive(Debug, Clone, Deserialize)]
struct Case {
    ids: Vec<u32>,
    /// Starts and ends, one after the other.
    offsets: Vec<usize>,
    /// Where it is not the text.
    decoded: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Goldens {
    texts: Vec<String>,
    vocabularies: Vec<Vocabulary>,
}

static GOLDENS: LazyLock<Goldens> = LazyLock::new(|| {
    let text = std::fs::read_to_string(repository().join("tests/goldens/sentencepiece.json")).expect("the goldens");
    serde_json::from_str(&text).expect("JSON")
});

impl Vocabulary {
    fn named(name: &str) -> Self {
        GOLDENS.vocabularies.iter().find(|vocabulary| vocabulary.name == name).expect("a golden").clone()
    }

    fn file(&self) -> File {
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

    /// Every text of the goldens with what transformers makes of it.
    fn for_each_case(&self, check: impl Fn(&Tokenizer, &str, &Case)) {
        let tokenizer = built(&self.file());
        assert_eq!(self.cases.len(), GOLDENS.texts.len());
        GOLDENS.texts.iter().zip(&self.cases).for_each(|(text, case)| check(&tokenizer, text, case));
    }
}

fn for_each_case(check: impl Fn(&Vocabulary, &Tokenizer, &str, &Case)) {
    for vocabulary in &GOLDENS.vocabularies {
        vocabulary.for_each_case(|tokenizer, text, case| check(vocabulary, tokenizer, text, case));
    }
}

// ---- against transformers ----

#[test]
fn texts_have_the_ids_and_offsets_of_transformers() {
    let options = EncodeOptions { offsets: true, ..EncodeOptions::default() };
    for_each_case(|Vocabulary { name, .. }, tokenizer, text, case| {
        assert_eq!(tokenizer.encode(text, false).expect("text"), case.ids, "{name} {text:?}");
        let encoding = tokenizer.encode_with(text, &options).expect("text");
        assert_eq!(encoding.ids, case.ids, "{name} {text:?}, the slow way");
        let offsets: Vec<usize> =
            encoding.offsets.expect("offsets").iter().flat_map(|range| [range.start, range.end]).collect();
        assert_eq!(offsets, case.offsets, "{name} {text:?}");
    });
}

#[test]
fn ids_decode_as_in_transformers_and_their_bytes_add_up_to_it() {
    for_each_case(|Vocabulary { name, .. }, tokenizer, text, case| {
        let decoded = case.decoded.as_deref().unwrap_or(text);
        assert_eq!(tokenizer.decode(&case.ids, false).expect("known ids"), decoded, "{name} {text:?}");
        let bytes = joined(tokenizer, &case.ids);
        let whole = bytes.strip_prefix(b" ").filter(|_| name != "gemma").unwrap_or(&bytes);
        assert_eq!(whole, decoded.as_bytes(), "{name} {text:?}");
    });
}

#[test]
fn a_whole_text_begins_with_bos_unless_the_file_says_no() {
    let vocabulary = Vocabulary::named("llama");
    let encode = |file: File| built(&file).encode("the", true).expect("text");
    assert_eq!(encode(vocabulary.file())[..1], [1]);
    assert_eq!(encode(vocabulary.file().bool("tokenizer.ggml.add_eos_token", true))[2..], [2]);
    assert_eq!(encode(vocabulary.file().bool("tokenizer.ggml.add_bos_token", false)).len(), 1);
    assert_eq!(built(&vocabulary.file()).encode("<s>the", true).expect("text").len(), 2);
}

#[test]
fn control_and_unknown_tokens_are_special_and_a_users_are_not() {
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

/// Where a user's runs do not build up one by one, they are found in text as they stand.
#[test]
fn a_lone_run_of_spaces_is_found_in_text() {
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

/// A real `tokenizer.json` as a converter from SentencePiece would have written it. Its merges tell the scores.
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
        match is_user(token) {
            true => vocabulary.put(&token["id"], &content.replace('▁', " "), USER_DEFINED),
            false => vocabulary.put(&token["id"], content, if content == "<unk>" { UNKNOWN } else { CONTROL }),
        }
    }
    (Tokenizer::from_json(&bytes, &[]).expect("a sound file"), vocabulary)
}

impl Vocabulary {
    fn put(&mut self, id: &Value, token: &str, kind: i32) {
        let id = id.as_u64().expect("an id") as usize;
        self.tokens[id] = token.to_owned();
        self.types[id] = kind;
        if kind == USER_DEFINED {
            self.scores[id] = -1000.0;
        }
    }
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
    ]; // no ▁: as an added token, transformers looks for a run of it and not of spaces
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
fn a_vocabulary_of_the_llama_kind_has_the_ids_of_its_tokenizer_json() {
    let (json, vocabulary) = converted("llama2", "llama", 1, |_| false);
    assert_converted(&json, &vocabulary);
}

#[test]
fn a_vocabulary_of_the_gemma_kind_has_the_ids_of_its_tokenizer_json() {
    let (json, vocabulary) = converted("gemma3", "gemma3", 2, |token| token["special"] == false);
    assert_converted(&json, &vocabulary);
}

// ---- files that lie ----

/// A sound vocabulary of two letters.
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
fn what_is_not_in_the_vocabulary_is_unknown() {
    let tokenizer = built(&small().file());
    assert_eq!(tokenizer.encode("ab aé€b", false).ok(), Some(vec![7, 3, 4, 0, 5]));
    assert_eq!(tokenizer.decode(&[7, 3, 4, 5], false).ok().as_deref(), Some("ab ab"));
}

#[test]
fn a_vocabulary_that_cannot_be_used_is_refused_by_key() {
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

/// Runs of a letter: all can be made in as many ways as they are long.
fn runs(count: usize) -> Vocabulary {
    let mut vocabulary = small();
    vocabulary.tokens.extend((2..count).map(|length| "a".repeat(length)));
    let size = vocabulary.tokens.len();
    vocabulary.scores.resize(size, -3.0);
    vocabulary.types.resize(size, NORMAL);
    vocabulary
}

#[test]
fn tokens_that_are_made_of_each_other_are_bounded_in_time_and_memory() {
    let start = Instant::now();
    assert_eq!(built(&runs(64).file()).encode(&"a".repeat(63), false).map(|ids| ids.len()).ok(), Some(2));
    let error = Tokenizer::from_gguf(&runs(2000).file().open().expect("a sound file")).expect_err("too many merges");
    assert!(matches!(error, TokenizerError::Merges { .. }), "{error}");
    let mut long = small();
    long.tokens[6] = "a".repeat(4 << 20);
    long.tokens[7] = "b".repeat(4 << 20);
    assert!(Tokenizer::from_gguf(&long.file().open().expect("a sound file")).is_ok());
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn the_digest_follows_what_decides_ids() {
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

// ---- with a model ----

/// A Llama with E 48, H 4, K 2, D 16, F 80 and one layer, over the vocabulary.
fn model(vocabulary: &Vocabulary) -> File {
    let sizes = [
        ("embedding_length", 48),
        ("feed_forward_length", 80),
        ("block_count", 1),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 16),
        ("attention.value_length", 16),
        ("rope.dimension_count", 16),
        ("context_length", 512),
    ];
    let file = sizes.iter().fold(vocabulary.file(), |file, (key, size)| file.u32(&format!("llama.{key}"), *size));
    let file = file.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    let norms = ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"];
    let file = norms.iter().fold(file, |file, name| file.weights(&format!("{name}.weight"), &[48], |_| 1.0));
    let size = vocabulary.tokens.len() as u64;
    let matrices = [
        ("token_embd", [48, size]),
        ("output", [48, size]),
        ("blk.0.attn_q", [48, 64]),
        ("blk.0.attn_k", [48, 32]),
        ("blk.0.attn_v", [48, 32]),
        ("blk.0.attn_output", [64, 48]),
        ("blk.0.ffn_gate", [48, 80]),
        ("blk.0.ffn_up", [48, 80]),
        ("blk.0.ffn_down", [80, 48]),
    ];
    let number = |place: u64| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / (1 << 25) as f32 - 0.25;
    (1..).zip(matrices).fold(file, |file, (seed, (name, dims))| {
        file.weights(&format!("{name}.weight"), &dims, |place| number(place + seed * 1_000_003))
    })
}

/// The ids and the bytes of 48 tokens after the prompt, and how many tokens the prompt has.
fn generate(path: &Path, prompt: &str) -> (Vec<u32>, Vec<u8>, usize) {
    let config = Config { threads: 1, kv_memory: Some(8 << 20), ..Config::new(path.to_owned()) };
    let engine = Engine::start(config).expect("the model loads").0;
    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(1.0), seed: Some(5), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(48), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { token_ids: true, bytes: true, ..Returns::default() },
        ..GenerateRequest::new(Input::Text(prompt.to_owned()))
    };
    let mut events = engine.submit(request.prepare(engine.model()).expect("a good request"), None).expect("room");
    let (mut ids, mut bytes, mut length) = (Vec::new(), Vec::new(), 0);
    loop {
        let delta = match events.blocking_recv().expect("an end") {
            Event::Accepted(accepted) => {
                length = accepted.prompt_tokens;
                continue;
            }
            Event::Delta(delta) => delta,
            Event::Finished(end) => end.last,
            Event::Summary(_) => return (ids, bytes, length),
            other => panic!("{other:?}"),
        };
        ids.extend(delta.token_ids);
        bytes.extend(delta.parts.into_iter().flat_map(|part| part.bytes));
    }
}

#[test]
fn a_model_with_such_a_vocabulary_generates_the_bytes_of_its_tokens() {
    for vocabulary in GOLDENS.vocabularies.iter().filter(|vocabulary| vocabulary.architecture == "llama") {
        let (path, tokenizer) = (model(vocabulary).write(), built(&vocabulary.file()));
        let prompt = "<s>the boats\n";
        let (ids, bytes, length) = generate(&path, prompt);
        std::fs::remove_file(path).expect("the file is there");
        assert_eq!((ids.len(), length), (48, tokenizer.encode(prompt, false).expect("text").len()));
        let shown: Vec<u32> = ids.into_iter().filter(|&id| !tokenizer.is_special(id)).collect();
        assert_eq!(bytes, joined(&tokenizer, &shown), "{}", vocabulary.name);
    }
}
