//! A model's metadata, read without its weights from a GGUF header and from Hugging Face folders.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tandem_common::status::chain;
use tandem_model_files::artifacts::{
    Artifacts, ArtifactsError, SamplingDefaults, is_mmproj, mmproj_beside, open_mmproj,
};
use tandem_tests::default_artifacts;
use tandem_tests::error_texts;
use tandem_tests::gguf_file::File;
use tandem_tests::repository;

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
    assert_eq!(model.generation_eos, [7, 9]);
    let sampling = model.sampling_defaults().expect("the keys have the right types");
    assert_eq!((sampling.temperature, sampling.top_k, sampling.file), (Some(0.5), Some(20), Some(path)));
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
    assert_eq!(pairs(&model.special_tokens.named), [("eos_token", "other"), ("boi_token", "<boi>")]);
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

/// The expectations are those of `AutoProcessor` (`golden/make_image_processors.py`).
#[test]
fn templates_of_a_processor_precede_others() {
    let golden = std::fs::read_to_string(repository().join("tests/golden/image_processors.json")).expect("the golden");
    let golden: Value = serde_json::from_str(&golden).expect("JSON");
    let rows = golden["templates"].as_array().expect("a list");
    for row in rows {
        let files = row["files"].as_object().expect("files").iter();
        let files: Vec<_> = files.map(|(name, text)| (name.as_str(), text.as_str().expect("a text"))).collect();
        let name = row["name"].as_str().expect("a name");
        assert_eq!(load(name, &files).templates.get("default"), row["default"].as_str(), "{name}");
    }
    assert_eq!(rows.len(), 8);
}

#[test]
fn without_a_processor_the_templates_of_the_tokenizer_are_used() {
    let legacy = ("chat_template.json", r#"{"chat_template": "legacy"}"#);
    let model = load("no-processor", &[legacy, ("chat_template.jinja", "file")]);
    assert_eq!(model.templates.get("default"), Some("file"));
}

#[test]
fn generation_config_follows_the_file_order_of_transformers() {
    let config = json!({"model_type": "m", "eos_token_id": 5, "text_config": {"max_position_embeddings": 2048}});
    let config = ("config.json", &*config.to_string());
    let model = load("generation-none", &[config]);
    assert_eq!(model.generation_eos, [5]);
    assert_eq!(model.sampling_defaults().expect("no file"), SamplingDefaults::default());
    assert_eq!((model.architecture.as_deref(), model.context_length), (Some("m"), Some(2048)));
    let generation = r#"{"eos_token_id": [3, 4, 3], "temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": true,
        "num_beams": 1, "no_repeat_ngram_size": 3, "suppress_tokens": [7], "guidance_scale": null}"#;
    let model = load("generation", &[config, ("generation_config.json", generation)]);
    assert_eq!(model.generation_eos, [3, 4]);
    let sampling = model.sampling_defaults().expect("the values have the right types");
    assert_eq!((sampling.temperature, sampling.top_p), (Some(0.6), Some(0.95)));
    assert_eq!((sampling.top_k, sampling.do_sample), (Some(20), Some(true)));
    assert_eq!(sampling.min_p, None);
    assert_eq!(sampling.without_effect, ["no_repeat_ngram_size", "suppress_tokens"]);
}

#[test]
fn sampling_defaults_beside_a_gguf_replace_its_own() {
    let own = File::new().text("general.architecture", "llama").f32("general.sampling.temp", 0.5);
    let folder = folder("sampling", &[("notes.txt", "")]);
    let model = folder.join("m-1.5.gguf");
    std::fs::write(&model, own.bytes()).expect("the test's folder can be written");
    let read = || {
        let defaults = Artifacts::load(&model).expect("a model").sampling_defaults().expect("sound values");
        (defaults.temperature, defaults.top_k, defaults.file)
    };
    assert_eq!(read(), (Some(0.5), None, Some(model.clone())));
    let beside = folder.join("m-1.5.generation_config.json");
    std::fs::write(&beside, r#"{"temperature": 0.25, "top_k": null}"#).expect("the test's folder can be written");
    assert_eq!(read(), (Some(0.25), None, Some(beside)));
}

#[test]
fn sampling_default_of_the_wrong_type_is_named() {
    let wrong = [("temperature", "\"hot\""), ("top_k", "-1"), ("top_k", "2.5"), ("do_sample", "1")];
    let texts = wrong.map(|(key, value)| {
        let text = format!("{{\"{key}\": {value}}}");
        let model = load("sampling-type", &[("generation_config.json", &text)]);
        let error = model.sampling_defaults().expect_err(value);
        assert!(matches!(&error, ArtifactsError::Field { field, .. } if field == key), "{error:?}");
        chain(&error).replace(FOLDERS, "FOLDERS")
    });
    error_texts::check_rows("artifacts/sampling-type", texts);
}

/// Files of Granite 4 and Nemotron 3 have such numbers, and Python's `json` writes them.
#[test]
fn numbers_that_are_not_finite_do_not_matter_where_nothing_reads_them() {
    let config = r#"{"model_type": "m", "time_step_limit": [0.0, Infinity], "rope_theta": 1e999, "n_ctx": 8}"#;
    let tokenizer = r#"{"bos_token": "<s>", "model_max_length": Infinity, "chat_template": "t", "x": -1e309}"#;
    let generation = r#"{"eos_token_id": [1, NaN, 2], "temperature": 0.5, "x": -Infinity}"#;
    let processor = r#"{"chat_template": "p", "x": [NaN]}"#;
    let model = load(
        "not-finite",
        &[
            ("config.json", config),
            ("tokenizer_config.json", tokenizer),
            ("generation_config.json", generation),
            ("processor_config.json", processor),
        ],
    );
    assert_eq!((model.architecture.as_deref(), model.context_length), (Some("m"), Some(8)));
    assert_eq!(model.special_tokens.get("bos_token"), Some("<s>"));
    assert_eq!(model.templates.get("default"), Some("p"));
    assert_eq!(model.generation_eos, [1, 2]);
    assert_eq!(model.sampling_defaults().expect("a finite temperature").temperature, Some(0.5));
    assert_eq!(model.config["rope_theta"].as_f64(), None);
}

#[test]
fn a_sampling_default_that_is_not_finite_is_named() {
    let errors = ["1e999", "-Infinity", "NaN"].map(|number| {
        let file = format!(r#"{{"eos_token_id": 1, "temperature": {number}}}"#);
        let model = load("infinite", &[("generation_config.json", &file)]);
        let error = model.sampling_defaults().expect_err("not finite");
        assert!(matches!(error, ArtifactsError::Field { .. }), "{error:?}");
        chain(&error).replace(FOLDERS, "FOLDERS")
    });
    error_texts::check_rows("artifacts/infinite", errors);
    let model = load("large", &[("generation_config.json", r#"{"temperature": 1e300}"#)]);
    let error = model.sampling_defaults().expect_err("no f32");
    check_text("artifacts/sampling-large", &error);
    let path = File::new().f32("general.sampling.temp", f32::NAN).write();
    let error = Artifacts::load(&path).expect("valid").sampling_defaults().expect_err("NaN");
    error_texts::check("artifacts/sampling-gguf-nan", chain(&error).replace(&path.display().to_string(), "FILE"));
}

#[test]
fn files_that_cost_too_much_are_rejected() {
    let templates = |count: usize| {
        let list: Vec<_> = (0..count).map(|i| json!({"name": i.to_string(), "template": "t"})).collect();
        json!({"chat_template": list}).to_string()
    };
    assert_eq!(load("templates", &[("tokenizer_config.json", &templates(64))]).templates.named.len(), 64);
    refused(&folder("templates", &[("tokenizer_config.json", &templates(65))]), "artifacts/templates");
    let long = json!({"chat_template": "t".repeat((1 << 20) + 1)}).to_string();
    refused(&folder("long-template", &[("chat_template.json", &long)]), "artifacts/long-template");
    let values = |value: &str, count: usize| format!(r#"{{"a": [0{}]}}"#, value.repeat(count));
    refused(&folder("values", &[("config.json", &values(",0", 3_000_000))]), "artifacts/values");
    refused(&folder("objects", &[("config.json", &values(",{}", 1_000_000))]), "artifacts/objects");
    for (name, case, length) in [
        ("config.json", "artifacts/long-config", 17 << 20),
        ("chat_template.jinja", "artifacts/long-template-file", 2 << 20),
    ] {
        let folder = folder("sparse", &[(name, "{}")]);
        let file = std::fs::OpenOptions::new().append(true).open(folder.join(name)).expect("the file is there");
        file.set_len(length).expect("the file can grow");
        refused(&folder, case);
    }
    let tokenizer = format!("{{\"a\": [0{}]}}", ",0".repeat(3_000_000));
    let error = load("tokenizer-values", &[("tokenizer.json", &tokenizer)]).tokenizer().expect_err("too many values");
    error_texts::check("artifacts/tokenizer-values", chain(&error).replace(FOLDERS, "FOLDERS"));
    let path = (0..65).fold(File::new(), |file, i| file.text(&format!("tokenizer.chat_template.t{i}"), "t")).write();
    let error = Artifacts::load(&path).expect_err("65 templates");
    assert!(matches!(error, ArtifactsError::Templates { .. }), "{error:?}");
}

#[test]
fn folder_with_one_gguf_is_that_model() {
    let gguf = File::new().text("general.architecture", "llama").bytes();
    let folder = folder("one-gguf", &[("README.md", "x")]);
    std::fs::write(folder.join("tiny.gguf"), &gguf).expect("the test's folder can be written");
    let model = Artifacts::load(&folder).expect("one file");
    assert_eq!((model.name.as_str(), &model.path), ("tiny", &folder.join("tiny.gguf")));
    std::fs::write(folder.join("other.gguf"), &gguf).expect("the test's folder can be written");
    assert!(matches!(refused(&folder, "artifacts/several"), ArtifactsError::Several { .. }));
}

#[test]
fn folder_with_a_config_and_only_one_gguf_as_weights_is_that_gguf() {
    let gguf = File::new().text("general.architecture", "llama").bytes();
    let folder = folder("config-and-gguf", &[("config.json", r#"{"model_type": "other"}"#), ("tokenizer.json", "{}")]);
    let load = || Artifacts::load(&folder).expect("a model").path;
    assert_eq!(load(), folder);
    let file = folder.join("tiny.Q4_1.gguf");
    std::fs::write(&file, &gguf).expect("the test's folder can be written");
    assert_eq!(load(), file);
    for other in ["model.safetensors", "pytorch_model.bin", "tiny.Q8_0.gguf"] {
        std::fs::write(folder.join(other), &gguf).expect("the test's folder can be written");
        assert_eq!(load(), folder, "{other}");
        std::fs::remove_file(folder.join(other)).expect("it was written");
    }
    assert_eq!(load(), file);
}

/// Writes GGUF files of these names and architectures into a folder.
fn write_gguf(folder: &Path, files: &[(&str, &str)]) {
    for (name, architecture) in files {
        File::new().text("general.architecture", architecture).write_to(&folder.join(name));
    }
}

#[test]
fn folder_with_one_gguf_and_mmproj_files_is_that_gguf() {
    let plain = folder("gguf-and-mmproj", &[("README.md", "x")]);
    write_gguf(&plain, &[("tiny.gguf", "gemma3"), ("mmproj-tiny.gguf", "clip"), ("tiny-MMPROJ-f16.gguf", "clip")]);
    let config = folder("config-gguf-and-mmproj", &[("config.json", "{}")]);
    write_gguf(&config, &[("tiny.gguf", "gemma3"), ("mmproj-tiny.gguf", "clip")]);
    for folder in [&plain, &config] {
        assert_eq!(Artifacts::load(folder).expect("one model").path, folder.join("tiny.gguf"));
    }
    write_gguf(&plain, &[("mmproj-text.gguf", "llama")]);
    refused(&plain, "artifacts/several-with-mmproj");
}

#[test]
fn mmproj_files_are_found_by_name_and_architecture() {
    let folder = folder("mmproj", &[("mmproj-broken.gguf.part", "x")]);
    let names = [("tiny.gguf", "gemma3"), ("b-mmproj.gguf", "clip"), ("a.MMPROJ.GGUF", "clip"), ("tower.gguf", "clip")];
    write_gguf(&folder, &names);
    write_gguf(&folder, &[("mmproj-text.gguf", "llama")]);
    let found = mmproj_beside(&folder.join("tiny.gguf")).expect("readable headers");
    let found: Vec<_> = found.into_iter().map(|(path, _)| path).collect();
    assert_eq!(found, [folder.join("a.MMPROJ.GGUF"), folder.join("b-mmproj.gguf")]);
    assert!(found.iter().all(|path| is_mmproj(path)));
    let others = ["tower.gguf", "mmproj-text.gguf", "mmproj-broken.gguf.part", "absent-mmproj.gguf"];
    assert!(others.iter().all(|name| !is_mmproj(&folder.join(name))));
    open_mmproj(&folder.join("tower.gguf")).expect("any name");
    check_text("artifacts/not-mmproj", &open_mmproj(&folder.join("tiny.gguf")).expect_err("a language model"));
}

#[test]
fn repository_of_a_hugging_face_cache_is_the_snapshot_of_main() {
    let config = r#"{"model_type": "llama"}"#;
    let (one, two) = ("snapshots/1111/config.json", "snapshots/2222/config.json");
    let cache = folder(
        "hub",
        &[
            ("models--org--name/refs/main", "2222\n"),
            (&format!("models--org--name/{one}"), "{}"),
            (&format!("models--org--name/{two}"), config),
            (&format!("models--org--single/{one}"), config),
            (&format!("models--org--several/{one}"), config),
            (&format!("models--org--several/{two}"), config),
            ("version.txt", "1"),
        ],
    );
    let model = Artifacts::load(&cache.join("models--org--name")).expect("main");
    assert_eq!((model.name.as_str(), model.architecture.as_deref()), ("org/name", Some("llama")));
    assert_eq!(Artifacts::load(&cache.join("models--org--single")).expect("one snapshot").name, "org/single");
    refused(&cache.join("models--org--several"), "artifacts/several-snapshots");
    refused(&cache, "artifacts/cache");
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
    let files = folder("files", &[("model.bin", "x"), ("model.safetensors", "x")]);
    refused(&files.join("model.bin"), "artifacts/alien-extension");
    refused(&files.join("model.safetensors"), "artifacts/weights");
    refused(Path::new("/nowhere/model.bin"), "artifacts/nothing");
    refused(Path::new("/nowhere/model.gguf"), "artifacts/absent");
    let broken = folder("broken", &[("tokenizer_config.json", "{")]);
    assert!(matches!(refused(&broken, "artifacts/json"), ArtifactsError::Json { .. }));
    let wrong = folder("wrong", &[("tokenizer_config.json", r#"{"chat_template": 7}"#)]);
    refused(&wrong, "artifacts/template-type");
    let nameless = folder("nameless", &[("tokenizer_config.json", r#"{"chat_template": [{"template": "t"}]}"#)]);
    refused(&nameless, "artifacts/template-without-name");
}
