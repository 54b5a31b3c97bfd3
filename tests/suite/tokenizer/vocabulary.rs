//! Encoding and decoding: the default model's tokenizer, compared with goldens, and small
//! tokenizers that these tests make.

use serde_json::{Value, json};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::gguf::Gguf;
use tandem_model_files::tokenizer::{FolderToken, FolderTokens, Tokenizer, TokenizerError};
use tandem_tests::default_artifacts;
use tandem_tests::error_texts;
use tandem_tests::gguf_file::File;
use tandem_tests::tokenizers::{bpe, built, byte_level, goldens, ids, joined, json_tokenizer, refused, spelled};

fn default_tokenizer() -> Tokenizer {
    let tokenizer = default_artifacts().tokenizer().expect("the default model's tokenizer");
    tokenizer.prepare();
    tokenizer
}

#[test]
fn string_ids_match_the_goldens() {
    let tokenizer = default_tokenizer();
    for case in goldens()["strings"].as_array().expect("a list") {
        let text = case["text"].as_str().expect("a string");
        assert_eq!(tokenizer.encode(text, false).ok(), Some(ids(&case["ids"])), "{text:?}");
    }
}

#[test]
fn prompt_ids_match_the_goldens() {
    let tokenizer = default_tokenizer();
    for case in goldens()["cases"].as_array().expect("a list") {
        let prompt = case["prompt"].as_str().expect("a string");
        assert_eq!(tokenizer.encode(prompt, false).ok(), Some(ids(&case["prompt_ids"])), "{}", case["id"]);
    }
}

#[test]
fn decoded_text_and_joined_bytes_equal_the_input_text() {
    let tokenizer = default_tokenizer();
    for case in goldens()["strings"].as_array().expect("a list") {
        let (text, ids) = (case["text"].as_str().expect("a string"), ids(&case["ids"]));
        assert_eq!(tokenizer.decode(&ids, false).ok().as_deref(), Some(text));
        assert_eq!(joined(&tokenizer, &ids), text.as_bytes());
    }
}

#[test]
fn outputs_decode_without_special_tokens() {
    let tokenizer = default_tokenizer();
    for case in goldens()["cases"].as_array().expect("a list") {
        let text = tokenizer.decode(&ids(&case["greedy_ids"]), true).expect("known ids");
        assert_eq!(Some(&*text), case["greedy_text"].as_str(), "{}", case["id"]);
    }
}

#[test]
fn every_id_of_the_default_model_has_bytes_and_seventeen_are_special() {
    let tokenizer = default_tokenizer();
    assert_eq!(tokenizer.vocab_size(), 49_152);
    assert!((0..49_152).all(|id| tokenizer.token_bytes(id).is_some_and(|bytes| !bytes.is_empty())));
    assert_eq!(tokenizer.special_ids(), (0..17).collect::<Vec<u32>>());
    assert_eq!(tokenizer.token_to_id("<|im_end|>"), Some(2));
    assert_eq!(tokenizer.id_to_token(2).as_deref(), Some("<|im_end|>"));
    assert!(tokenizer.token_bytes(49_152).is_none());
}

#[test]
fn an_unknown_id_is_refused_by_number() {
    let error = default_tokenizer().decode(&[1, 49_152], false).expect_err("it is not known");
    error_texts::check("tokenizer/unknown-id", error);
}

/// Returns the tokenizer part of a GGUF header whose vocabulary has the letters a and b, the space,
/// and two further tokens.
fn header(pre: &str, merges: &[&str]) -> File {
    File::new()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", pre)
        .strings("tokenizer.ggml.tokens", &["a", "b", "Ġ", "ab", "Ġab", "<end>", "<tool>", "1", "11"])
        .i32s("tokenizer.ggml.token_type", &[1, 1, 1, 1, 1, 3, 4, 1, 1])
        .strings("tokenizer.ggml.merges", merges)
}

const MERGES: &[&str] = &["a b", "Ġ ab", "1 1"];

#[test]
fn control_and_user_tokens_match_in_text_only_control_is_special() {
    let tokenizer = built(&header("gpt-2", MERGES));
    assert_eq!(tokenizer.encode("ab ab<end>a<tool>", false).ok(), Some(vec![3, 4, 5, 0, 6]));
    assert_eq!(tokenizer.special_ids(), [5]);
    assert_eq!(tokenizer.token_bytes(4), Some(&b" ab"[..]));
    assert_eq!(tokenizer.decode(&[3, 5, 6], true).ok().as_deref(), Some("ab<tool>"));
}

#[test]
fn pre_tokenizer_decides_how_digits_are_split() {
    assert_eq!(built(&header("gpt-2", MERGES)).encode("111", false).ok(), Some(vec![8, 7]));
    assert_eq!(built(&header("smollm", MERGES)).encode("111", false).ok(), Some(vec![7, 7, 7]));
    assert_eq!(built(&header("qwen2", MERGES)).encode("111", false).ok(), Some(vec![7, 7, 7]));
    assert_eq!(built(&header("llama-bpe", MERGES).bool("tokenizer.ggml.add_bos_token", false)).vocab_size(), 9);
}

#[test]
fn bos_and_eos_follow_the_file_and_the_pre_tokenizer() {
    let ids = |file: File| file.u32("tokenizer.ggml.bos_token_id", 5).u32("tokenizer.ggml.eos_token_id", 6);
    let encode = |file: File| built(&ids(file)).encode("a", true).expect("text");
    assert_eq!(encode(header("gpt-2", MERGES)), [0]);
    assert_eq!(encode(header("llama-bpe", MERGES)), [5, 0]);
    let add = |bos, eos| {
        let file = header("llama-bpe", MERGES).bool("tokenizer.ggml.add_bos_token", bos);
        encode(file.bool("tokenizer.ggml.add_eos_token", eos))
    };
    assert_eq!(add(false, false), [0]);
    assert_eq!(add(true, true), [5, 0, 6]);
}

#[test]
fn invalid_vocabulary_is_rejected_by_name() {
    refused(&File::new().text("tokenizer.ggml.model", "t5"), "tokenizer/model");
    refused(&File::new(), "tokenizer/no-model");
    let error = Tokenizer::from_gguf(&header("made-up", MERGES).open().expect("valid")).expect_err("unknown");
    assert!(matches!(&error, TokenizerError::PreTokenizer { found, .. } if found == "made-up"), "{error}");
    error_texts::check("tokenizer/pre-tokenizer", error);
    refused(&header("gpt-2", &["a b", "b a"]), "tokenizer/merge-result");
    refused(&header("gpt-2", &["ab"]), "tokenizer/merge-form");
    refused(&header("gpt-2", MERGES).u32("tokenizer.ggml.eos_token_id", 9), "tokenizer/eos-id");
    let twice = File::new()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "gpt-2")
        .strings("tokenizer.ggml.tokens", &["a", "b", "a"])
        .strings("tokenizer.ggml.merges", &[]);
    refused(&twice, "tokenizer/repeated");
    refused(&twice.clone().i32s("tokenizer.ggml.token_type", &[1]), "tokenizer/types");
}

#[test]
fn digest_changes_only_with_data_that_affects_ids() {
    let digest = |file: &File| built(file).sha256().to_owned();
    let one = digest(&header("gpt-2", MERGES));
    assert_eq!(one, digest(&header("gpt-2", MERGES).text("general.name", "other")));
    assert_ne!(one, digest(&header("smollm", MERGES)));
    assert_ne!(one, digest(&header("gpt-2", &MERGES[..2])));
    assert_ne!(one, digest(&header("gpt-2", MERGES).u32("tokenizer.ggml.eos_token_id", 6)));
    assert_eq!(default_tokenizer().sha256(), "900810dee6f147345635f8516702a18c829503a8f94befbfa4c645eeb1f5fcc8");
}

#[test]
fn tokenizers_of_one_gguf_have_equal_digests() {
    let model = default_artifacts();
    let (one, two) = (model.tokenizer().expect("a tokenizer"), model.tokenizer().expect("a tokenizer"));
    assert_eq!(one.sha256(), two.sha256());
    let gguf: &Gguf = model.gguf().expect("a GGUF");
    assert_eq!(Tokenizer::from_gguf(gguf).expect("a tokenizer").sha256(), one.sha256());
}

#[test]
fn byte_level_tokens_give_bytes_and_added_tokens_their_text() {
    let tokenizer = byte_level(&[b"\xC3\xA9", b" \xFF\n"], &[("<｜x▁y｜>", true), ("<plain>", false)]);
    for byte in 0..=255u8 {
        assert_eq!(tokenizer.token_bytes(u32::from(byte)), Some(&[byte][..]));
    }
    assert_eq!(tokenizer.token_bytes(256), Some("é".as_bytes()));
    assert_eq!(tokenizer.token_bytes(257), Some(&b" \xFF\n"[..]));
    assert_eq!(tokenizer.token_bytes(258), Some("<｜x▁y｜>".as_bytes()));
    assert_eq!(tokenizer.token_bytes(259), Some(&b"<plain>"[..]));
    assert_eq!(tokenizer.special_ids(), [258]);
}

#[test]
fn token_bytes_undo_byte_fallback_and_metaspace() {
    let decoder = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]});
    let json = json_tokenizer(bpe(&["▁a", "<0xF0>", "<0x9g>", "<0x0A>", "b▁▁"]), decoder, &[]);
    let tokenizer = Tokenizer::from_json(&json).expect("valid");
    let bytes: Vec<_> = (0..5).map(|id| tokenizer.token_bytes(id).expect("known").to_vec()).collect();
    assert_eq!(bytes, [&b" a"[..], b"\xF0", b"<0x9g>", b"\n", b"b  "]);
    assert_eq!(tokenizer.decode(&[0, 4], false).ok().as_deref(), Some("ab  "));
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let tokenizer = Tokenizer::from_json(&json_tokenizer(bpe(&["▁a"]), metaspace, &[])).expect("valid");
    assert_eq!(tokenizer.token_bytes(0), Some(&b" a"[..]));
}

#[test]
fn unigram_scores_with_fractions_are_read() {
    let unigram = json!({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.5], ["ab", -1e-3]]});
    let tokenizer = Tokenizer::from_json(&json_tokenizer(unigram, Value::Null, &[])).expect("valid");
    assert_eq!(tokenizer.encode("ab", false).ok(), Some(vec![2]));
}

#[test]
fn truncation_and_padding_of_the_file_are_not_applied() {
    let tokenizer = byte_level(&[], &[]);
    assert_eq!(tokenizer.encode("abc", false).map(|ids| ids.len()).ok(), Some(3));
}

#[test]
fn tokens_named_in_the_config_are_special() {
    let json = json_tokenizer(bpe(&["a", "</s>", "<", "/", "s", ">"]), Value::Null, &[]);
    let plain = Tokenizer::from_json(&json).expect("valid");
    assert!(!plain.is_special(1));
    let named = ["</s>", "<nowhere>"].map(|text| FolderToken::Text(text.to_owned())).to_vec();
    let named = Tokenizer::from_folder(&json, &FolderTokens { extra: named, ..FolderTokens::default() });
    let named = named.expect("valid");
    assert!(named.is_special(1));
    assert_eq!(named.encode("a</s><nowhere>", false).ok(), Some(vec![0, 1, 6]));
    assert!(named.vocab_size() == 7 && plain.sha256() != named.sha256());
}

#[test]
fn a_broken_tokenizer_json_is_an_error() {
    let refused = |json: &[u8]| Tokenizer::from_json(json).expect_err("it is broken");
    let mut model = bpe(&["a", "b"]);
    model["merges"] = json!(["a b"]);
    let broken = [
        refused(b"{"),
        refused(&json_tokenizer(model, Value::Null, &[])),
        refused(&json_tokenizer(bpe(&["a"]), json!(7), &[])),
    ];
    assert!(broken.iter().all(|error| matches!(error, TokenizerError::Json { .. })), "{broken:?}");
    error_texts::check_rows("tokenizer/json", broken);
    let words = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
    let decoder = refused(&json_tokenizer(bpe(&["a"]), words, &[]));
    assert!(matches!(decoder, TokenizerError::Decoder { .. }), "{decoder:?}");
    error_texts::check("tokenizer/decoder", decoder);
    let mut far = bpe(&["a"]);
    far["vocab"]["b"] = json!(u32::MAX);
    let large = refused(&json_tokenizer(far, Value::Null, &[]));
    assert!(matches!(large, TokenizerError::TooLarge { .. }), "{large:?}");
    error_texts::check("tokenizer/largest-id", large);
}

#[test]
fn folder_tokenizer_marks_config_tokens_as_special() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("tokenizer-folder");
    std::fs::create_dir_all(&folder).expect("the test's folder can be written");
    let json = json_tokenizer(bpe(&["a", "</s>"]), Value::Null, &[]);
    std::fs::write(folder.join("tokenizer.json"), json).expect("the test's folder can be written");
    let config = r#"{"eos_token": "</s>"}"#;
    std::fs::write(folder.join("tokenizer_config.json"), config).expect("the test's folder can be written");
    let model = Artifacts::load(&folder).expect("valid");
    assert_eq!(model.tokenizer().expect("valid").special_ids(), [1]);
    assert_eq!(model.eos_token_ids().ok(), Some(vec![1]));
}

/// Returns a tokenizer.json with these parts. Added tokens are contents, and whether they are normalized.
fn assembled(model: &Value, [normalizer, pre_tokenizer]: [&Value; 2], added: &[(&str, bool)]) -> Tokenizer {
    let token = |(id, (content, normalized)): (u32, &(&str, bool))| {
        json!({"id": id, "content": content, "special": false, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": normalized})
    };
    let added: Vec<_> = (1000..).zip(added).map(token).collect();
    let file = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": {"type": "Fuse"}, "model": model});
    Tokenizer::from_json(file.to_string().as_bytes()).expect("a valid tokenizer.json")
}

#[test]
fn a_tokenizer_that_may_drop_text_has_no_minimum_of_tokens() {
    let single: Vec<String> = (0..=255u8).map(|byte| format!("<0x{byte:02X}>")).collect();
    let with_bytes: Vec<&str> = single.iter().map(String::as_str).chain(["▁", "a"]).collect();
    let fallback = bpe(&with_bytes);
    let bytes: Vec<String> = (0..=255u8).map(|byte| spelled(&[byte])).collect();
    let byte_level = bpe(&bytes.iter().map(String::as_str).collect::<Vec<_>>());
    let words = json!({"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"});
    let marked = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
    let split = json!({"type": "WhitespaceSplit"});
    let both = json!({"type": "Sequence", "pretokenizers": [split, level]});
    let (none, spaces) = (Value::Null, format!("a{}", " ".repeat(10_000)));
    let added: Vec<(&str, bool)> = single.iter().map(|byte| (byte.as_str(), false)).collect();
    let (long, blank) = ("é".repeat(100), " ".repeat(24));
    let cases = [
        (assembled(&fallback, [&none, &split], &[]), spaces.clone()),
        (assembled(&byte_level, [&none, &both], &[]), spaces),
        (assembled(&words, [&none, &level], &[]), "b".repeat(4000)),
        (assembled(&bpe(&["a"]), [&none, &none], &added), "b".repeat(4000)),
        (assembled(&fallback, [&marked, &none], &[(&blank, true)]), "▁".repeat(24 * 800)),
        (assembled(&byte_level, [&none, &level], &[(&long, false)]), long.repeat(1000)),
    ];
    for (i, (tokenizer, text)) in cases.iter().enumerate() {
        let found = tokenizer.encode(text, false).expect("ids").len();
        let least = tokenizer.min_tokens(text);
        assert!(least <= found, "case {i}: {found} tokens, at least {least}");
    }
    let plain = assembled(&fallback, [&marked, &none], &[]);
    assert!(plain.min_tokens(&"a b ".repeat(10_000)) > 1000);
}
