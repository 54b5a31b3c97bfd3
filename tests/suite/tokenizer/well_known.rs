//! The tokenizers of well-known models, compared with transformers. `cargo xtask test` fetches
//! them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::sync::{LazyLock, Mutex};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::{EncodeOptions, Tokenizer, TokenizerError};
use tandem_tests::default_artifacts;
use tandem_tests::tokenizers::{agree, classic, ids, literal_ids, plain, texts};
use tandem_tests::{corpus, repository};

const NAMES: [&str; 7] = ["deepseek_v3", "deepseek_v4", "gemma3", "gptoss", "llama2", "llama3_1", "qwen3"];

/// Returns a tokenizer, loaded once for all tests: the largest takes seconds.
fn tokenizer(name: &str) -> Tokenizer {
    static LOADED: LazyLock<Mutex<BTreeMap<String, Tokenizer>>> = LazyLock::new(Mutex::default);
    let mut loaded = LOADED.lock().expect("no test fails while it loads one");
    let load = || {
        let folder = repository().join(".tandem/tokenizers").join(name);
        assert!(folder.is_dir(), "{} is missing: `cargo xtask test` fetches it", folder.display());
        let tokenizer = Artifacts::load(&folder).expect("artifacts").tokenizer().expect("a tokenizer");
        tokenizer.prepare();
        tokenizer
    };
    loaded.entry(name.to_owned()).or_insert_with(load).clone()
}

fn json(path: &std::path::Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a golden file")).expect("JSON")
}

/// Reads ranges from alternating starts and ends.
fn ranges(value: &Value) -> Vec<Range<usize>> {
    let bounds: Vec<usize> = serde_json::from_value(value.clone()).expect("a list of numbers");
    bounds.chunks(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Calls `check` for every string of the project with transformers' result.
fn for_each_own(check: impl Fn(&str, &Tokenizer, &str, &Value)) {
    let goldens = json(&repository().join("tests/golden/tokenizers.json"));
    let strings: Vec<String> = serde_json::from_value(goldens["strings"].clone()).expect("strings");
    for name in NAMES {
        let cases = goldens["tokenizers"][name].as_array().expect("cases");
        strings.iter().zip(cases).for_each(|(text, case)| check(name, &tokenizer(name), text, case));
    }
}

#[test]
fn golden_string_ids_match_transformers() {
    for_each_own(|name, tokenizer, text, case| {
        assert_eq!(plain(tokenizer, text), ids(&case["ids"]), "{name} {text:?}");
        assert_eq!(classic(tokenizer, text, &[]), ids(&case["ids"]), "{name} {text:?}");
        let decoded = case["decoded"].as_str().unwrap_or(text);
        assert_eq!(tokenizer.decode(&ids(&case["ids"]), false).ok().as_deref(), Some(decoded), "{name}");
    });
}

/// If a text already starts with a bos, the tokenizer adds no second one, although transformers
/// does.
#[test]
fn golden_strings_get_only_one_bos() {
    for_each_own(|name, tokenizer, text, case| {
        let special = if case["special_ids"].is_null() { ids(&case["ids"]) } else { ids(&case["special_ids"]) };
        let is_doubled = !case["special_ids"].is_null() && special.get(1) == special.first();
        let expected = if is_doubled { &special[1..] } else { &special[..] };
        assert_eq!(tokenizer.encode(text, true).expect("text"), expected, "{name} {text:?}");
    });
}

#[test]
fn golden_string_offsets_match_transformers() {
    let options = EncodeOptions { offsets: true, ..EncodeOptions::default() };
    for_each_own(|name, tokenizer, text, case| {
        let offsets = tokenizer.encode_with(text, &options).expect("text").offsets;
        assert_eq!(offsets, Some(ranges(&case["offsets"])), "{name} {text:?}");
    });
}

#[test]
fn literal_added_tokens_have_the_ids_of_transformers() {
    for_each_own(|name, tokenizer, text, case| {
        if case["literal_ids"].is_array() {
            let literal = ranges(&case["literal"]);
            assert_eq!(literal_ids(tokenizer, text, &literal), ids(&case["literal_ids"]), "{name} {text:?}");
            assert_eq!(classic(tokenizer, text, &literal), ids(&case["literal_ids"]), "{name} {text:?}");
        }
    });
}

/// Calls `check` for every tokenizer with its file in the corpus. Does nothing without the corpus.
fn for_each_of_corpus(check: impl Fn(&str, &Tokenizer, &Value)) {
    let Some(corpus) = corpus() else { return };
    for name in NAMES {
        let golden = json(&corpus.join("tokens").join(format!("{name}.json")));
        let tokenizer = tokenizer(name);
        assert_eq!(Some(tokenizer.sha256()), golden["tokenizer_json_sha256"].as_str());
        check(name, &tokenizer, &golden);
    }
}

#[test]
fn corpus_string_ids_match_transformers() {
    for_each_of_corpus(|name, tokenizer, golden| {
        for case in golden["raw"].as_array().expect("a list") {
            let text = case["text"].as_str().expect("a string");
            assert_eq!(plain(tokenizer, text), ids(&case["ids"]), "{name} {text:?}");
            assert_eq!(classic(tokenizer, text, &[]), ids(&case["ids"]), "{name} {text:?}");
            assert_eq!(tokenizer.encode(text, true).expect("text"), ids(&case["ids_special"]), "{name} {text:?}");
            let decoded = tokenizer.decode(&ids(&case["ids"]), false).expect("known ids");
            assert_eq!(Some(&*decoded), case["decoded"].as_str(), "{name} {text:?}");
        }
    });
}

/// `split_special_tokens` still recognises added tokens that are not special, and puts Llama 2's
/// space before the text. Otherwise it gives the same ids as a text that is literal as a whole.
#[test]
fn literal_corpus_strings_match_split_special_tokens() {
    for_each_of_corpus(|name, tokenizer, golden| {
        let keeps =
            |text: &str| tokenizer.added_tokens().iter().any(|token| !token.is_special && text.contains(&token.text));
        for case in golden["raw"].as_array().expect("a list") {
            let text = case["text"].as_str().expect("a string");
            if name != "llama2" && !keeps(text) {
                let all = 0..text.len();
                assert_eq!(literal_ids(tokenizer, text, &[all]), ids(&case["ids_split_special"]), "{name} {text:?}");
            }
        }
    });
}

/// Calls `check` for every chat of the corpus with its rendered prompt.
fn for_each_chat(check: impl Fn(&str, &Tokenizer, &str, &str, &Value)) {
    for_each_of_corpus(|_, tokenizer, golden| {
        for (slug, cases) in golden["chat"].as_object().expect("chats by template") {
            let goldens = corpus().expect("the corpus").join("goldens").join(format!("{slug}.json"));
            let prompts = json(&goldens);
            for (id, case) in cases.as_object().expect("cases by conversation") {
                if let Some(prompt) = prompts["cases"][id]["ok"].as_str() {
                    check(&format!("{slug} {id}"), tokenizer, slug, prompt, case);
                }
            }
        }
    });
}

#[test]
fn corpus_chat_ids_match_transformers() {
    for_each_chat(|name, tokenizer, _, prompt, case| {
        if case["ids"].is_array() {
            assert_eq!(plain(tokenizer, prompt), ids(&case["ids"]), "{name}");
            assert_eq!(plain(tokenizer, prompt), ids(&case["ids"]), "{name}, remembered");
        }
    });
}

/// Returns the ranges of control tokens in the messages. A control token is special, or the
/// template writes it.
fn written_by_users(tokenizer: &Tokenizer, template: &str, prompt: &str, conversation: &Value) -> Vec<Range<usize>> {
    let is_control = |text: &str, is_special| is_special || (template.contains(text) && !text.trim().is_empty());
    let added = tokenizer.added_tokens().iter();
    let control: Vec<_> = added.filter(|token| is_control(&token.text, token.is_special)).collect();
    let mut found = Vec::new();
    for message in conversation["messages"].as_array().expect("messages") {
        let content = message["content"].as_str().expect("text").trim();
        let Some(start) = prompt.find(content) else { continue };
        for token in &control {
            found.extend(content.match_indices(&token.text).map(|(at, text)| start + at..start + at + text.len()));
        }
    }
    found.sort_by_key(|range| range.start);
    found
}

#[test]
fn control_tokens_in_the_messages_of_the_corpus_stay_text() {
    for_each_chat(|name, tokenizer, slug, prompt, case| {
        if !name.ends_with(" 18-special-tokens-in-content") || !case["ids_sanitized"].is_array() {
            return;
        }
        let corpus = corpus().expect("the corpus");
        let template = fs::read_to_string(corpus.join(format!("templates/{slug}.jinja"))).expect("a template");
        let conversation = json(&corpus.join("conversations/18-special-tokens-in-content.json"));
        let literal = written_by_users(tokenizer, &template, prompt, &conversation);
        assert_eq!(literal_ids(tokenizer, prompt, &literal), ids(&case["ids_sanitized"]), "{name} {literal:?}");
    });
}

/// Generates fragments that are difficult for tokenizers, for random combination.
fn fragments(tokenizer: &Tokenizer) -> BoxedStrategy<String> {
    let added: Vec<String> = tokenizer.added_tokens().iter().map(|token| token.text.clone()).collect();
    let nasty = [
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\n\n ",
        "\u{a0}",
        "\u{3000}",
        "▁",
        "e\u{301}",
        "\u{323}\u{301}",
        "ﬁ",
        "İ",
        "ſ",
        "'s",
        "'LL",
        "’t",
        "12",
        "١٢٣",
        "Ⅻ",
        "½",
        "漢字",
        "かな",
        "한국어",
        "ไทย",
        "👩\u{200D}💻",
        "🏳️\u{200D}🌈",
        "\0",
        "\u{7}",
        "\u{7FD}",
        "\u{1E6E3}",
        "a\u{20DD}",
        "<",
        "|>",
        "</",
        "x",
        "The ",
        "THE",
        "…",
        "“",
        "\u{FEFF}",
        "\u{10FFFF}",
        "\u{1100}\u{1161}\u{11A8}",
    ];
    let nasty: Vec<String> = nasty.map(str::to_owned).to_vec();
    prop_oneof![
        4 => prop::sample::select(nasty),
        2 => prop::sample::select(added),
        1 => any::<char>().prop_map(String::from),
        1 => "[a-z]{1,12} ?",
    ]
    .boxed()
}

fn agree_on_any_text(name: &str, tokenizer: &Tokenizer) {
    let mut runner = TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
    let result = runner.run(&texts(fragments(tokenizer)), |(text, literal)| {
        agree(tokenizer, &text, &literal);
        Ok(())
    });
    assert!(result.is_ok(), "{name}: {}", result.expect_err("a failure"));
}

#[test]
fn both_encoders_agree_on_any_text() {
    NAMES.iter().for_each(|name| agree_on_any_text(name, &tokenizer(name)));
}

/// The tokenizer's vocabulary lacks eight bytes.
#[test]
fn both_encoders_agree_on_any_text_for_the_default_model() {
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    tokenizer.prepare();
    agree(&tokenizer, "a\u{4}b th\u{13}e 1 \u{40000}\u{1D}\u{1D}", &[]);
    agree_on_any_text("SmolLM2", &tokenizer);
}

#[test]
fn a_text_has_at_least_its_minimum_of_tokens() {
    let mut tokenizers: Vec<_> = NAMES.map(|name| (name, tokenizer(name))).into();
    tokenizers.push(("SmolLM2", default_artifacts().tokenizer().expect("a tokenizer")));
    let runs = [
        " ",
        "a",
        "=",
        "\n",
        "-",
        "_",
        "漢",
        "e\u{301}",
        "\u{1112}\u{1161}\u{11ab}",
        "\u{4}",
        "\u{1D}x",
        "▁",
        "\u{a0}",
    ];
    for (name, tokenizer) in &tokenizers {
        for text in runs.map(|run| run.repeat(20_000)).iter().chain(&[" ".repeat(128), "-".repeat(255)]) {
            let (least, found) = (tokenizer.min_tokens(text), plain(tokenizer, text).len());
            assert!(least <= found, "{name}: {found} tokens, at least {least}");
        }
    }
    let unknown: Vec<_> = tokenizers.iter().filter(|(_, it)| it.min_tokens(&"a ".repeat(10_000)) == 0).collect();
    assert!(unknown.is_empty(), "without a minimum: {unknown:?}");
}

/// The text is too long for the classic encoder.
#[test]
fn ten_million_spaces_have_ids_and_no_offsets() {
    let (tokenizer, text) = (tokenizer("deepseek_v3"), " ".repeat(10_000_000));
    let options = EncodeOptions { offsets: true, ..EncodeOptions::default() };
    assert!(matches!(tokenizer.encode_with(&text, &options), Err(TokenizerError::TooLong { .. })));
    assert_eq!(plain(&tokenizer, &text).len(), 78_125);
    assert!(tokenizer.encode(&format!("{text}\u{88F}"), false).is_ok());
}

/// If the time grew faster than the text, this test would take minutes.
#[test]
fn both_encoders_agree_on_very_long_runs() {
    let units = ["a", " ", "A", "\n", "1", "!", "漢", "\u{301}", "👩\u{200D}", "'", "<", "   x", "qwertyuiop", "\0"];
    for name in NAMES {
        let tokenizer = tokenizer(name);
        for unit in units {
            let text = unit.repeat(100_000 / unit.len());
            assert_eq!(plain(&tokenizer, &text), classic(&tokenizer, &text, &[]), "{name} {unit:?}");
        }
    }
}

/// Texts of at least 200 KB. Long words are encoded in windows, so the words have periods, changes
/// and characters of every length.
fn long_texts() -> Vec<(&'static str, String)> {
    let mut state = 1u64;
    let mut random = move |count: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % count
    };
    let mut letters = |alphabet: &str, count: usize| -> String {
        let chars: Vec<char> = alphabet.chars().collect();
        (0..count).map(|_| chars[random(chars.len() as u64) as usize]).collect()
    };
    let words = letters("aeinrst ", 200_000);
    vec![
        ("one letter", "a".repeat(200_000)),
        ("a period", "abcde".repeat(40_000)),
        ("spaces", " ".repeat(200_000)),
        ("random letters", letters("abcdefghijklmnopqrstuvwxyz", 200_000)),
        ("two letters", letters("ab", 200_000)),
        ("digits", letters("0123456789", 200_000)),
        ("punctuation", letters("!?.,-=*#", 200_000)),
        ("base64", letters("ABCDEFGHIJKLMabcdefghijklm0123456789+/", 200_000)),
        ("ideographs", letters("的一是不了人我在有他这中大来上个国说们", 70_000)),
        ("rare characters", letters("𓀀𓀁𓀂𒀀𒀁🦀🧵é", 60_000)),
        ("change", format!("{}{}{}", "ab".repeat(50_000), letters("xyz", 70_000), "long".repeat(20_000))),
        ("words beside a long word", format!("{words}{}{words}", "z".repeat(40_000))),
        ("words", words),
    ]
}

#[test]
fn long_texts_have_the_ids_and_offsets_of_the_classic_encoder() {
    let options = EncodeOptions { offsets: true, ..EncodeOptions::default() };
    for (kind, text) in long_texts() {
        for name in NAMES {
            let tokenizer = tokenizer(name);
            // The classic encoder fails on some of these texts.
            let Ok(expected) = tokenizer.encode_classic(&text, &options) else { continue };
            assert!(plain(&tokenizer, &text) == expected.ids, "{name} {kind}");
            assert!(tokenizer.encode_with(&text, &options).expect(kind) == expected, "{name} {kind}");
        }
    }
}
