//! Encoding of text into ids, on tokenizers made by these tests. The cases compare the fast encoder
//! with the classic encoder. They cover literal ranges, tokens added around a text, and cached
//! text.

#![allow(clippy::single_range_in_vec_init, reason = "lists of one range are meant")]

use proptest::prelude::*;
use serde_json::{Value, json};
use tandem_model_files::tokenizer::{
    AddedToken, AffixPolicy, CancelScope, EncodeOptions, FolderToken, FolderTokens, Tokenizer, TokenizerError,
};
use tandem_tests::error_texts;
use tandem_tests::tokenizers::{agree, literal_ids, texts};
use tokio_util::sync::CancellationToken;

/// The vocabulary of every tokenizer of this file: token `i` has id `i`.
const VOCAB: [&str; 16] = ["<unk>", "▁", "a", "b", "x", "<", ">", "\n", "ab", "▁a", "▁ab", "<x", "<x>", "t", "aa", "é"];
const MERGES: [(&str, &str); 6] = [("a", "b"), ("▁", "a"), ("▁", "ab"), ("<", "x"), ("<x", ">"), ("a", "a")];

/// A tokenizer.json.
#[derive(Debug, Clone)]
struct File(Value);

impl File {
    fn new() -> Self {
        let vocab: serde_json::Map<_, _> =
            VOCAB.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), json!(id))).collect();
        let model = json!({"type": "BPE", "vocab": vocab, "merges": MERGES, "unk_token": "<unk>"});
        Self(json!({"version": "1.0", "added_tokens": [], "model": model}))
    }

    fn with(mut self, name: &str, component: Value) -> Self {
        self.0[name] = component;
        self
    }

    /// Adds a token with these flags of the format set.
    fn added(mut self, text: &str, flags: &[&str]) -> Self {
        let added = self.0["added_tokens"].as_array_mut().expect("a list");
        let next = VOCAB.len() + added.len();
        let id = VOCAB.iter().position(|token| *token == text).unwrap_or(next);
        let mut token = json!({"id": id, "content": text});
        for name in ["special", "single_word", "lstrip", "rstrip", "normalized"] {
            token[name] = flags.contains(&name).into();
        }
        added.push(token);
        self
    }

    fn tokenizer(&self) -> Tokenizer {
        let tokenizer = Tokenizer::from_json(self.0.to_string().as_bytes()).expect("a valid tokenizer.json");
        tokenizer.prepare();
        tokenizer
    }
}

fn metaspace(scheme: &str, split: bool) -> Value {
    json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split})
}

fn llama2() -> Value {
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, spaces]})
}

fn words() -> Value {
    json!({"type": "Split", "pattern": {"Regex": "\\s+|\\S+"}, "behavior": "Isolated", "invert": false})
}

/// Returns one tokenizer for each way to put a prefix before a text or to include adjacent white
/// space in a token.
fn files() -> Vec<(&'static str, File)> {
    let base = || File::new().added("<s>", &["special"]).added("</s>", &["special"]);
    let cut = |scheme, split| base().with("pre_tokenizer", metaspace(scheme, split));
    let strips =
        base().added("<l>", &["lstrip", "special"]).added("<r>", &["rstrip"]).added("<b>", &["lstrip", "rstrip"]);
    vec![
        ("bare", base()),
        ("always", cut("always", true)),
        ("first", cut("first", true)),
        ("first, whole", cut("first", false)),
        ("never", cut("never", true)),
        ("prepend", base().with("normalizer", llama2())),
        ("strips", strips.clone()),
        ("strips and first", strips.clone().with("pre_tokenizer", metaspace("first", false))),
        ("strips and prepend", strips.with("normalizer", llama2())),
        ("normalized", base().added("<l>", &["normalized"]).added("<l><r>", &[])),
        ("normalized and prepend", base().added("<l>", &["normalized"]).with("normalizer", llama2())),
        ("single word", base().added("ab", &["single_word"])),
        ("spelled", base().added("<x>", &["special"]).added("ab", &[])),
        ("composed", base().with("normalizer", json!({"type": "NFC"}))),
        ("lower case", base().with("normalizer", json!({"type": "Lowercase"}))),
        ("composed and first", cut("first", false).with("normalizer", json!({"type": "NFC"}))),
        ("any regex", base().with("pre_tokenizer", words())),
    ]
}

fn fragment() -> BoxedStrategy<String> {
    let parts = [
        "a", "b", "ab", "aab", " ", "  ", "▁", "\n", "<x>", "<", "A", "é", "e\u{301}", "<s>", "</s>", "<l>", "<r>",
        "<b>",
    ];
    prop::sample::select(parts.map(str::to_owned).to_vec()).boxed()
}

#[test]
fn both_encoders_agree_for_every_tokenizer_component() {
    for (name, file) in files() {
        let tokenizer = file.tokenizer();
        let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
        let result = proptest::test_runner::TestRunner::new(config).run(&texts(fragment()), |(text, literal)| {
            agree(&tokenizer, &text, &literal);
            Ok(())
        });
        assert!(result.is_ok(), "{name}: {}", result.expect_err("a failure"));
    }
}

#[test]
fn cached_text_has_the_ids_of_uncached_text() {
    for (name, file) in files() {
        let (remembers, forgets, small) = (file.tokenizer(), file.tokenizer(), file.tokenizer());
        forgets.set_cache_bytes(0);
        small.set_cache_bytes(4096);
        let turn = |number: usize| format!("<s>{}</s>\n", "a ab é ".repeat(10 * number));
        let chat: String = (0..20).map(turn).collect();
        for end in (0..=chat.len()).step_by(997).chain([chat.len(), chat.len()]) {
            let text = &chat[..chat.floor_char_boundary(end)];
            let expected = forgets.encode(text, false).expect("text");
            assert_eq!(remembers.encode(text, false).expect("text"), expected, "{name} {end}");
            assert_eq!(small.clone().encode(text, false).expect("text"), expected, "{name} {end}");
        }
    }
}

#[test]
fn added_tokens_are_listed_by_id() {
    let tokenizer = File::new().added("<s>", &["special"]).added("ab", &[]).tokenizer();
    let token = |id, text: &str, is_special| AddedToken { id, text: text.to_owned(), is_special };
    assert_eq!(tokenizer.added_tokens(), [token(8, "ab", false), token(16, "<s>", true)]);
}

#[test]
fn literal_text_becomes_no_added_token() {
    let tokenizer = File::new().added("<s>", &["special"]).added("<t>", &[]).tokenizer();
    assert_eq!(literal_ids(&tokenizer, "<t>a<t>", &[4..7]), [17, 2, 5, 13, 6]);
    assert_eq!(literal_ids(&tokenizer, "<t>", &[0..1]), [5, 13, 6]);
    assert_eq!(literal_ids(&tokenizer, "a<t>b", &[0..2, 2..5]), [2, 5, 13, 6, 3]);
    assert_eq!(literal_ids(&tokenizer, "<t>", &[1..1]), [5, 13, 6]);
}

#[test]
fn literal_added_token_in_the_vocabulary_is_split() {
    let tokenizer = File::new().added("<x>", &["special"]).tokenizer();
    assert_eq!(tokenizer.encode("<x>", false).ok(), Some(vec![12]));
    assert_eq!(literal_ids(&tokenizer, "a<x><x>ab", &[0..9]), [2, 5, 4, 6, 5, 4, 6, 8]);
    let options = EncodeOptions { literal: &[1..4], offsets: true, ..EncodeOptions::default() };
    let encoding = tokenizer.encode_with("a<x>", &options).expect("text");
    assert_eq!(encoding.ids, [2, 5, 4, 6]);
    assert_eq!(encoding.offsets, Some(vec![0..1, 1..2, 2..3, 3..4]));
}

#[test]
fn space_prefix_is_added_only_at_the_text_start() {
    let tokenizer = File::new().added("<s>", &["special"]).with("normalizer", llama2()).tokenizer();
    assert_eq!(tokenizer.encode("a<s>a", false).ok(), Some(vec![9, 16, 9]));
    assert_eq!(literal_ids(&tokenizer, "aaa", &[1..2]), [9, 2, 2]);
    assert_eq!(literal_ids(&tokenizer, "a", &[0..1]), [2]);
}

#[test]
fn the_error_of_a_wrong_literal_range_names_the_range_and_the_length() {
    let options = EncodeOptions { literal: &[3..4], ..EncodeOptions::default() };
    let error = File::new().tokenizer().encode_with("é", &options).expect_err("not a range of the text");
    error_texts::check("tokenizer/literal", error);
}

fn template(parts: &[&str]) -> Value {
    let part = |name: &&str| match *name {
        "$A" => json!({"Sequence": {"id": "A", "type_id": 0}}),
        name => json!({"SpecialToken": {"id": name, "type_id": 0}}),
    };
    let parts: Vec<_> = parts.iter().map(part).collect();
    let special = json!({"<s>": {"id": "<s>", "ids": [16], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [17], "tokens": ["</s>"]}});
    json!({"type": "TemplateProcessing", "single": parts, "pair": [], "special_tokens": special})
}

fn around(processor: Value) -> Tokenizer {
    File::new().added("<s>", &["special"]).added("</s>", &["special"]).with("post_processor", processor).tokenizer()
}

#[track_caller]
fn between(tokenizer: &Tokenizer, text: &str, expected: &[u32]) {
    assert_eq!(tokenizer.encode(text, true).expect("text"), expected, "{text:?}");
}

#[test]
fn surrounding_special_tokens_are_added_once() {
    let both = around(template(&["<s>", "$A", "</s>"]));
    between(&both, "a", &[16, 2, 17]);
    between(&both, "", &[16, 17]);
    between(&both, "<s>a", &[16, 2, 17]);
    between(&both, "a<s>", &[16, 2, 16, 17]);
    between(&both, "<s><s>", &[16, 16, 17]);
    assert_eq!(both.encode("<s>a", false).ok(), Some(vec![16, 2]));
    let twice = around(template(&["</s>", "<s>", "$A"]));
    between(&twice, "<s>a", &[17, 16, 16, 2]);
    between(&twice, "</s><s>a", &[17, 16, 2]);
}

#[test]
fn literal_bos_stays_text_after_the_added_bos() {
    let tokenizer = around(template(&["<s>", "$A"]));
    let options = EncodeOptions { affixes: AffixPolicy::Both, literal: &[0..3], offsets: true };
    let encoding = tokenizer.encode_with("<s>a", &options).expect("text");
    assert_eq!(encoding.ids, [16, 5, 0, 6, 2]);
    assert_eq!(encoding.offsets, Some(vec![0..0, 0..1, 1..2, 2..3, 3..4]));
}

#[test]
fn every_post_processor_type_is_applied() {
    let pair = |kind: &str| json!({"type": kind, "sep": ["</s>", 17], "cls": ["<s>", 16], "trim_offsets": true, "add_prefix_space": false});
    between(&around(pair("BertProcessing")), "a", &[16, 2, 17]);
    between(&around(pair("RobertaProcessing")), "a", &[16, 2, 17]);
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true});
    between(&around(bytes.clone()), "a", &[2]);
    let inner = template(&["<s>", "$A"]);
    between(
        &around(json!({"type": "Sequence", "processors": [bytes, inner, template(&["$A", "</s>"])]})),
        "a",
        &[16, 2, 17],
    );
}

#[test]
fn token_named_in_the_config_is_an_added_token() {
    let json = File::new().0.to_string();
    let tokens = FolderTokens { extra: vec![FolderToken::Text("ab".to_owned())], ..FolderTokens::default() };
    let tokenizer = Tokenizer::from_folder(json.as_bytes(), &tokens).expect("valid");
    assert_eq!(tokenizer.added_tokens(), [AddedToken { id: 8, text: "ab".to_owned(), is_special: true }]);
}

#[test]
fn encoding_ends_when_its_caller_has_gone() {
    let tokenizer = File::new().tokenizer();
    let cancelled = CancellationToken::new();
    let scope = CancelScope::start(cancelled.clone());
    tokenizer.encode("a b", false).expect("not cancelled");
    cancelled.cancel();
    assert!(matches!(tokenizer.encode("a b", false), Err(TokenizerError::Cancelled)));
    drop(scope);
    tokenizer.encode("a b", false).expect("the scope has ended");
}
