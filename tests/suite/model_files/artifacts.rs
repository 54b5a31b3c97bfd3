//! A model's metadata, read without its weights from a GGUF header and from Hugging Face folders.

use std::path::{Path, PathBuf};

use serde_json::json;
use tandem_common::status::chain;
use tandem_model_files::artifacts::{Artifacts, ArtifactsError};
use tandem_tests::default_artifacts;
use tandem_tests::error_texts;
use tandem_tests::gguf_file::File;

/// The folder of the folders that tests make.
const FOLDERS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/artifacts");

/// Makes a folder with these files. `name` must be unique to the test.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(FOLDERS).join(name);
    let _ = std::fs::remove_dir_all(&folder); // Removes the folder of an earlier run.
    for (file, text) in files {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("the test's folder can be written");
        std::fs::write(path, text).expect("the test's folder can be written");
    }
    folder
}

fn load(name: &str, files: &[(&str, &str)]) -> Artifacts {
    Artifacts::load(&folder(name, files)).expect("a valid folder")
}

/// Compares an error and its causes with the golden text. FOLDERS is written for the tests' folder.
#[track_caller]
fn check_text(case: &str, error: &ArtifactsError) {
    error_texts::check(case, chain(error).replace(FOLDERS, "FOLDERS"));
}

#[track_caller]
fn refused(path: &Path, case: &str) -> ArtifactsError {
    let error = Artifacts::load(path).expect_err(case);
    check_text(case, &error);
    error
}

fn pairs(named: &[(String, String)]) -> Vec<(&str, &str)> {
    named.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
}

#[test]
fn gguf_header_gives_name_special_tokens_and_template() {
    let model = default_artifacts();
    assert_eq!(model.name, "SmolLM2-135M-Instruct-Q4_1");
    assert_eq!(model.architecture.as_deref(), Some("llama"));
    assert_eq!(model.context_length, Some(8192));
    assert_eq!(
        pairs(&model.special_tokens.named),
        [
            ("bos_token", "<|im_start|>"),
            ("eos_token", "<|im_end|>"),
            ("unk_token", "<|endoftext|>"),
            ("pad_token", "<|im_end|>"),
        ]
    );
    assert_eq!(model.eos_token_ids().ok(), Some(vec![2]));
    assert!(model.templates.get("default").is_some_and(|text| text.contains("SmolLM, trained by Hugging Face")));
    assert_eq!(model.templates.names().collect::<Vec<_>>(), ["default"]);
    assert_eq!(model.templates.sha256("default").map(|digest| digest.len()), Some(64));
    assert!(model.gguf().is_some());
}

#[test]
fn a_gguf_holds_named_templates_and_sampling_defaults() {
    let path = File::new()
        .text("general.architecture", "qwen3")
        .u32("qwen3.context_length", 4096)
        .text("tokenizer.chat_template", "plain")
        .text("tokenizer.chat_template.tool_use", "tools")
        .text("tokenizer.chat_template.rag", "documents")
        .strings("tokenizer.chat_templates", &["tool_use", "rag"])
        .u32("tokenizer.ggml.eos_token_id", 7)
        .u32("tokenizer.ggml.eot_token_id", 9)
        .u32("tokenizer.ggml.eom_token_id", 7)
        .f32("general.sampling.temp", 0.5)
        .u32("general.sampling.top_k", 20)
        .write();
    let model = Artifacts::load(&path).expect("valid");
    assert_eq!(model.context_length, Some(4096));
    assert_eq!(pairs(&model.templates.named), [("rag", "documents"), ("tool_use", "tools")]);
    assert_eq!(model.templates.get("default"), Some("plain"));
    assert_eq!(model.generation.eos_token_ids, [7, 9]);
    assert_eq!((model.generation.temperature, model.generation.top_k), (Some(0.5), Some(20)));
    assert!(model.special_tokens.named.is_empty());
}

#[test]
fn folder_with_only_a_tokenizer_config_loads() {
    let model = load("config-only", &[("tokenizer_config.json", r#"{"bos_token": "<s>", "chat_template": "t"}"#)]);
    assert_eq!(model.name, "config-only");
    assert_eq!(model.templates.get("default"), Some("t"));
    assert_eq!(model.special_tokens.get("bos_token"), Some("<s>"));
    assert_eq!((model.architecture.as_deref(), model.context_length), (None, None));
    let error = model.tokenizer().expect_err("the folder has no tokenizer.json");
    error_texts::check("artifacts/tokenizer", chain(&error).replace(FOLDERS, "FOLDERS"));
}

#[test]
fn special_tokens_keep_transformers_order_and_object_content() {
    let config = json!({
        "image_token": "<image>",
        "pad_token": null,
        "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": false},
        "add_bos_token": true,
        "bos_token": "<s>",
        "additional_special_tokens": ["<a>", {"content": "<b>"}],
    });
    let model = load("special", &[("tokenizer_config.json", &config.to_string())]);
    assert_eq!(
        pairs(&model.special_tokens.named),
        [("bos_token", "<s>"), ("eos_token", "</s>"), ("image_token", "<image>")]
    );
    assert_eq!(model.special_tokens.additional, ["<a>", "<b>"]);
}

#[test]
fn extra_special_tokens_may_have_names() {
    let config = json!({"eos_token": "</s>", "extra_special_tokens": {"boi_token": "<boi>", "eos_token": "other"}});
    let model = load("extra", &[("tokenizer_config.json", &config.to_string())]);
    assert_eq!(pairs(&model.special_tokens.named), [("eos_token", "</s>"), ("boi_token", "<boi>")]);
}

#[test]
fn special_tokens_map_is_ignored_with_an_added_tokens_decoder() {
    let map = ("special_tokens_map.json", r#"{"eos_token": {"content": "<new>"}}"#);
    let old = load("map", &[("tokenizer_config.json", r#"{"eos_token": "<old>"}"#), map]);
    assert_eq!(old.special_tokens.get("eos_token"), Some("<new>"));
    let config = ("tokenizer_config.json", r#"{"eos_token": "<old>", "added_tokens_decoder": {}}"#);
    assert_eq!(load("no-map", &[config, map]).special_tokens.get("eos_token"), Some("<old>"));
}

#[test]
fn a_list_of_templates_is_read_by_name() {
    let list = json!([
        {"name": "default", "template": "d"},
        {"name": "tool_use", "template": "t"},
        {"name": "rag", "template": "r"},
    ]);
    let model = load("list", &[("tokenizer_config.json", &json!({"chat_template": list}).to_string())]);
    assert_eq!(model.templates.names().collect::<Vec<_>>(), ["default", "tool_use", "rag"]);
    assert_eq!(model.templates.get("rag"), Some("r"));
}

#[test]
fn template_files_replace_the_config_templates() {
    let config = ("tokenizer_config.json", r#"{"chat_template": [{"name": "rag", "template": "old"}]}"#);
    let file = ("chat_template.jinja", "new\r\n");
    let model = load("file", &[config, file]);
    assert_eq!(model.templates.get("default"), Some("new\r\n"));
    assert!(model.templates.named.is_empty());
    let more = ("additional_chat_templates/tool_use.jinja", "tools");
    let model = load("files", &[config, file, more, ("additional_chat_templates/README.md", "x")]);
    assert_eq!(pairs(&model.templates.named), [("tool_use", "tools")]);
    let model = load("only-more", &[config, more]);
    assert_eq!(model.templates.names().collect::<Vec<_>>(), ["tool_use"]);
}

#[test]
fn processor_template_is_used_without_a_tokenizer_template() {
    let processor = ("chat_template.json", r#"{"chat_template": "p"}"#);
    assert_eq!(load("processor", &[processor]).templates.get("default"), Some("p"));
    let config = ("tokenizer_config.json", r#"{"chat_template": "c"}"#);
    assert_eq!(load("processor-and-config", &[processor, config]).templates.get("default"), Some("c"));
}

#[test]
fn generation_defaults_follow_the_file_order_of_transformers() {
    let config = json!({"model_type": "m", "eos_token_id": 5, "text_config": {"max_position_embeddings": 2048}});
    let config = ("config.json", &*config.to_string());
    let model = load("generation-none", &[config]);
    assert_eq!(model.generation.eos_token_ids, [5]);
    assert_eq!((model.architecture.as_deref(), model.context_length), (Some("m"), Some(2048)));
    let generation =
        r#"{"eos_token_id": [3, 4, 3], "temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": true}"#;
    let model = load("generation", &[config, ("generation_config.json", generation)]);
    assert_eq!(model.generation.eos_token_ids, [3, 4]);
    assert_eq!((model.generation.temperature, model.generation.top_p), (Some(0.6), Some(0.95)));
    assert_eq!((model.generation.top_k, model.generation.do_sample), (Some(20), Some(true)));
    assert_eq!(model.generation.min_p, None);
}

#[test]
fn unlimited_model_max_length_gives_no_context_length() {
    let limit = |number: &str| format!(r#"{{"model_max_length": {number}}}"#);
    let unlimited = limit("1000000000000000019884624838656");
    assert_eq!(load("unlimited", &[("tokenizer_config.json", &unlimited)]).context_length, None);
    assert_eq!(load("limited", &[("tokenizer_config.json", &limit("4096"))]).context_length, Some(4096));
}

#[test]
fn invalid_model_is_rejected_with_its_path() {
    refused(&folder("empty", &[("README.md", "x")]), "artifacts/empty");
    refused(Path::new("/nowhere/model.bin"), "artifacts/alien-extension");
    refused(Path::new("/nowhere/model.gguf"), "artifacts/absent");
    let broken = folder("broken", &[("tokenizer_config.json", "{")]);
    assert!(matches!(refused(&broken, "artifacts/json"), ArtifactsError::Json { .. }));
    let wrong = folder("wrong", &[("tokenizer_config.json", r#"{"chat_template": 7}"#)]);
    refused(&wrong, "artifacts/template-type");
    let nameless = folder("nameless", &[("tokenizer_config.json", r#"{"chat_template": [{"template": "t"}]}"#)]);
    refused(&nameless, "artifacts/template-without-name");
}
