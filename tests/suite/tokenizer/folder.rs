//! The added tokens of a folder's files, compared with transformers.
//! `tests/golden/make_folder_tokens.py` makes the folders.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::digest::hex_sha256;
use tandem_model_files::tokenizer::{EncodeOptions, FolderToken, FolderTokens, Tokenizer, TokenizerError};
use tandem_tests::error_texts;
use tandem_tests::repository;
use tandem_tests::tokenizers::{classic, ids, json_tokenizer, literal_ids, plain};
use tempfile::TempDir;

/// The bit of `special` in the golden file's flags.
const SPECIAL: u64 = 1 << 4;

fn golden() -> Value {
    let path = repository().join("tests/golden/folder_tokens.json");
    serde_json::from_str(&fs::read_to_string(path).expect("the golden file")).expect("JSON")
}

/// Writes the files of a folder.
fn write(path: &Path, bases: &Value, folder: &Value) {
    let mut tokenizer = bases[folder["base"].as_str().expect("a name")].clone();
    tokenizer["added_tokens"] = folder["added"].clone();
    tokenizer["padding"] = folder["padding"].clone();
    let file = |name: &str, content: &Value| {
        fs::write(path.join(format!("{name}.json")), content.to_string()).expect("a folder that can be written");
    };
    file("tokenizer", &tokenizer);
    file("tokenizer_config", &folder["config"]);
    folder["files"].as_object().expect("an object").iter().for_each(|(name, content)| file(name, content));
}

/// Calls `check` with the artifacts of each folder, its name, and transformers' values.
fn for_each(check: impl Fn(&Artifacts, &str, &Value)) {
    let golden = golden();
    for folder in golden["folders"].as_array().expect("a list") {
        let path = tempfile::tempdir().expect("a folder");
        write(path.path(), &golden["bases"], folder);
        let name = folder["name"].as_str().expect("a name");
        let artifacts = Artifacts::load(path.path()).expect(name);
        let tokenizer = artifacts.tokenizer();
        let expected = &folder["expected"];
        // A folder that transformers refuses needs no value, but is no reason to panic.
        if expected["error"].is_null() {
            tokenizer.unwrap_or_else(|error| panic!("{name}: {error}")).prepare();
            check(&artifacts, name, expected);
        }
    }
}

fn ranges(value: &Value) -> Vec<Range<usize>> {
    ids(value).chunks(2).map(|pair| pair[0] as usize..pair[1] as usize).collect()
}

#[test]
fn a_folder_has_the_added_tokens_of_transformers() {
    for_each(|artifacts, name, expected| {
        let tokenizer = artifacts.tokenizer().expect(name);
        let found: Vec<_> =
            tokenizer.added_tokens().iter().map(|token| (u64::from(token.id), token.text.clone())).collect();
        let tokens = expected["tokens"].as_array().expect("a list");
        let expected_tokens: Vec<_> = tokens
            .iter()
            .map(|token| (token[0].as_u64().expect("an id"), token[1].as_str().expect("a text").to_owned()))
            .collect();
        assert_eq!(found, expected_tokens, "{name}");
        assert_eq!(tokenizer.special_ids(), ids(&expected["skipped"]), "{name}");
        for token in tokens {
            let (id, text) = (token[0].as_u64().and_then(|id| u32::try_from(id).ok()), token[1].as_str());
            assert_eq!(text.and_then(|text| tokenizer.token_to_id(text)), id, "{name}");
            let is_special = token[2].as_u64().is_some_and(|flags| flags & SPECIAL != 0);
            assert!(!is_special || id.is_some_and(|id| tokenizer.is_special(id)), "{name} {text:?}");
        }
    });
}

#[test]
fn texts_have_the_ids_of_transformers() {
    let options = EncodeOptions { offsets: true, ..EncodeOptions::default() };
    for_each(|artifacts, name, expected| {
        let tokenizer = artifacts.tokenizer().expect(name);
        for case in expected["cases"].as_array().expect("a list") {
            let text = case["text"].as_str().expect("a text");
            let expected = ids(&case["ids"]);
            assert_eq!(plain(&tokenizer, text), expected, "{name} {text:?}");
            assert_eq!(classic(&tokenizer, text, &[]), expected, "{name} {text:?}");
            let offsets = tokenizer.encode_with(text, &options).expect(text).offsets;
            assert_eq!(offsets, Some(ranges(&case["offsets"])), "{name} {text:?}");
            let decoded = case["decoded"].as_str().unwrap_or(text);
            assert_eq!(tokenizer.decode(&expected, false).expect(text), decoded, "{name} {text:?}");
            let skipped = case["skipped"].as_str().unwrap_or(decoded);
            assert_eq!(tokenizer.decode(&expected, true).expect(text), skipped, "{name} {text:?}");
        }
    });
}

#[test]
fn literal_text_has_no_added_token_of_any_file() {
    for_each(|artifacts, name, expected| {
        let tokenizer = artifacts.tokenizer().expect(name);
        let control = |id: &u32| {
            let token = tokenizer.added_tokens().iter().find(|token| token.id == *id);
            token.is_some_and(|token| token.text.contains('<') && token.text.len() > 1)
        };
        for case in expected["cases"].as_array().expect("a list") {
            let text = case["text"].as_str().expect("a text");
            let range = 0..text.len();
            let whole = std::slice::from_ref(&range);
            let found = literal_ids(&tokenizer, text, whole);
            assert!(!found.iter().any(control), "{name} {text:?} {found:?}");
            assert_eq!(found, classic(&tokenizer, text, whole), "{name} {text:?}");
        }
    });
}

#[test]
fn templates_get_the_named_tokens_of_transformers() {
    for_each(|artifacts, name, expected| {
        // The padding of tokenizer.json names a token only in the tokenizer.
        let named: BTreeMap<_, _> = artifacts.special_tokens.named.iter().cloned().collect();
        for (key, text) in expected["named"].as_object().expect("an object") {
            let is_of_tokenizer = key == "pad_token" && !named.contains_key(key);
            assert!(is_of_tokenizer || named.get(key).map(String::as_str) == text.as_str(), "{name}: {key}");
        }
        let is_known = |key: &String| expected["named"].get(key).is_some();
        assert!(named.keys().all(is_known), "{name}: {named:?}");
        let eos: Vec<u32> = expected["eos"].as_u64().and_then(|id| u32::try_from(id).ok()).into_iter().collect();
        assert_eq!(artifacts.eos_token_ids().expect(name), eos, "{name}");
    });
}

#[test]
fn only_a_changed_token_changes_the_fingerprint() {
    let golden = golden();
    let mut digests = BTreeMap::new();
    for folder in golden["folders"].as_array().expect("a list") {
        let path = tempfile::tempdir().expect("a folder");
        write(path.path(), &golden["bases"], folder);
        let (name, json) = (folder["name"].as_str().expect("a name"), fs::read(path.path().join("tokenizer.json")));
        let Ok(tokenizer) = Artifacts::load(path.path()).expect(name).tokenizer() else { continue };
        let json = json.expect("a file");
        let own = Tokenizer::from_json(&json).expect(name);
        let is_same = own.added_tokens() == tokenizer.added_tokens();
        assert!(is_same || own.sha256() != tokenizer.sha256(), "{name}");
        assert_eq!(own.sha256(), hex_sha256(&json));
        let again = Artifacts::load(path.path()).expect(name).tokenizer().expect(name);
        assert_eq!(again.sha256(), tokenizer.sha256(), "{name}");
        digests.insert(name.to_owned(), (own.sha256().to_owned(), tokenizer.sha256().to_owned()));
    }
    let is_same = |name: &str| digests[name].0 == digests[name].1;
    assert!(is_same("nothing is added") && is_same("map ignored with a list"));
    let changed = ["flags of the config", "config lists tokens", "special tokens are split", "a word becomes special"];
    assert!(!changed.into_iter().any(is_same));
}

fn folder(files: &[(&str, Value)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    files.iter().for_each(|(name, content)| fs::write(folder.path().join(name), content.to_string()).expect("a file"));
    folder
}

fn letters() -> Value {
    let model = json!({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []});
    serde_json::from_slice(&json_tokenizer(model, Value::Null, &[])).expect("JSON")
}

#[test]
fn a_list_of_tokens_of_the_wrong_type_is_refused_by_field() {
    let cases = [
        ("tokenizer_config.json", json!({"added_tokens_decoder": []})),
        ("tokenizer_config.json", json!({"added_tokens_decoder": {"x": {"content": "<x>"}}})),
        ("tokenizer_config.json", json!({"added_tokens_decoder": {"2": "<x>"}})),
        ("tokenizer_config.json", json!({"added_tokens_decoder": {"2": {"special": true}}})),
        ("added_tokens.json", json!({"<x>": "2"})),
    ];
    let errors = cases.map(|case| {
        let folder = folder(&[case, ("config.json", json!({}))]);
        let error = Artifacts::load(folder.path()).expect_err("the wrong type");
        tandem_common::status::chain(&error).replace(&folder.path().display().to_string(), "FOLDER")
    });
    error_texts::check_rows("tokenizer/folder", errors);
}

#[test]
fn a_folder_adds_a_bounded_number_of_tokens() {
    let tokens = |count: usize, text: &str| FolderTokens {
        extra: (0..count).map(|i| FolderToken::Text(format!("<{text}{i}>"))).collect(),
        ..FolderTokens::default()
    };
    let json = letters().to_string();
    let load = |tokens: &FolderTokens| Tokenizer::from_folder(json.as_bytes(), tokens);
    assert_eq!(load(&tokens(65_536, "t")).expect("as in the largest known folder").vocab_size(), 65_538);
    let many = load(&tokens((1 << 18) + 1, "")).expect_err("too many");
    let long = load(&tokens(5, &"long".repeat(1 << 18))).expect_err("too long");
    for error in [&many, &long] {
        assert!(matches!(error, TokenizerError::AddedTokens { .. }), "{error}");
    }
    error_texts::check_rows("tokenizer/added-limit", [many, long].map(|error| error.to_string()));
}

#[test]
fn an_id_beyond_the_limit_is_refused_before_a_token_is_added() {
    let mut file = letters();
    file["model"]["vocab"]["b"] = u32::MAX.into();
    file["added_tokens"] = json!([{"id": u32::MAX, "content": "b", "special": true, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false}]);
    let tokens = FolderTokens { extra: vec![FolderToken::Text("<x>".to_owned())], ..FolderTokens::default() };
    let refused = Tokenizer::from_folder(file.to_string().as_bytes(), &tokens).expect_err("too large");
    assert!(matches!(refused, TokenizerError::TooLarge { .. }), "{refused}");
}

#[test]
fn a_tokenizer_of_pythons_json_is_read() {
    let config = r#"{"eos_token": "<e>", "model_max_length": Infinity, "x": [NaN, -Infinity, "\ud800"]}"#;
    let folder = folder(&[("tokenizer.json", letters())]);
    fs::write(folder.path().join("tokenizer_config.json"), config).expect("a file");
    fs::write(folder.path().join("added_tokens.json"), "\u{feff}{\"<e>\": 1, \"<e>\": 7}").expect("a file");
    fs::write(folder.path().join("special_tokens_map.json"), "{\"pad_token\": \"<\\udfff>\"}").expect("a file");
    let artifacts = Artifacts::load(folder.path()).expect("artifacts");
    let tokenizer = artifacts.tokenizer().expect("a tokenizer");
    assert_eq!(artifacts.eos_token_ids().ok(), Some(vec![2]));
    assert_eq!(tokenizer.encode("a<e>b<\u{fffd}>", false).ok(), Some(vec![0, 2, 1, 3]));
}
