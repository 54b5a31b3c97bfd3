//! Invalid settings of config.json, and limits of memory.

use std::fs;

use serde_json::{Value, json};
use tandem_common::status::Reason;
use tandem_core::engine::left_in_control_groups;
use tandem_core::error::LoadError;
use tandem_core::models;
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::error_texts;
use tandem_tests::safetensors_file::{file, folder};
use tempfile::TempDir;

/// Loads a folder with this config and no tensors.
fn describe(config: &Value) -> LoadError {
    describe_text(config.to_string())
}

fn describe_text(config: String) -> LoadError {
    describe_files(config, file("{}", &[]))
}

fn describe_files(config: String, weights: Vec<u8>) -> LoadError {
    let folder = folder(&[("config.json", config.into_bytes()), ("model.safetensors", weights)]);
    let artifacts = Artifacts::load(folder.path()).expect("the folder has a config");
    models::describe(&models::open(&artifacts).expect("the files are valid")).expect_err("tensors are missing")
}

/// Returns settings with an invalid value of each.
fn invalid_settings() -> Vec<(&'static str, Value)> {
    vec![
        ("hidden_size", json!(-1)),
        ("hidden_size", json!(1_u64 << 60)),
        ("hidden_size", json!("8")),
        ("hidden_size", json!(8.5)),
        ("vocab_size", json!([])),
        ("num_hidden_layers", json!(16_000_000)),
        ("num_attention_heads", json!(1 << 20)),
        ("num_key_value_heads", json!(3)),
        ("head_dim", json!(7)),
        ("rms_norm_eps", json!(0)),
        ("rope_theta", json!(1e300)),
        ("rope_theta", json!(-1)),
        ("hidden_act", json!("relu")),
        ("attention_bias", json!(1)),
        ("rope_scaling", json!([])),
        ("rope_scaling", json!({"type": "yarn"})),
        ("rope_scaling", json!({"type": "linear"})),
        ("rope_parameters", json!({"rope_type": "dynamic"})),
        (
            "rope_scaling",
            json!({"type": "llama3", "factor": 1e-40, "low_freq_factor": 1, "high_freq_factor": 1, "original_max_position_embeddings": 1}),
        ),
        ("is_causal", json!(false)),
        ("transformers_weights", json!("other.safetensors")),
        ("fusion_config", json!({"qkv": "fused"})),
    ]
}

fn sound() -> Value {
    json!({
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": 8, "max_position_embeddings": 64, "rope_theta": 1e4,
    })
}

/// Python's `json` writes and reads such numbers.
#[test]
fn a_setting_that_is_not_finite_is_refused_by_name_only_if_it_is_read() {
    let config = sound().to_string();
    let unread = config.replace('{', r#"{"time_step_limit": [0.0, Infinity], "a": NaN, "b": -Infinity, "#);
    assert!(matches!(describe_text(unread), LoadError::TensorMissing { .. }));
    let infinite = json!({"__float__": "Infinity"}).to_string(); // as transformers 5 writes it
    let errors = ["Infinity", "-Infinity", "NaN", "1e999", &infinite].map(|number| {
        let error = describe_text(config.replace("10000.0", number));
        assert_eq!(error.reason(), Reason::ModelUnreadable, "{number}");
        error.chain()
    });
    error_texts::check_rows("config/infinite", errors);
}

/// transformers changes the frequencies beyond the context only.
#[test]
fn dynamic_scaling_has_no_effect_within_the_context() {
    let mut config = sound();
    config["rope_scaling"] = json!({"type": "dynamic", "rope_type": "dynamic", "factor": 2.0});
    assert!(matches!(describe(&config), LoadError::TensorMissing { .. }));
}

#[test]
fn a_config_with_yarn_is_read_with_the_remedy_of_the_error() {
    let mut config = sound();
    config["rope_scaling"] = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16});
    let error = describe(&config);
    assert!(matches!(error, LoadError::UnsupportedSetting { setting: "rope_type", .. }), "{error:?}");
    assert!(error.chain().contains("rope_type = \"default\" and max_position_embeddings = 16)"), "{}", error.chain());
    (config["rope_scaling"]["rope_type"], config["max_position_embeddings"]) = (json!("default"), json!(16));
    assert!(matches!(describe(&config), LoadError::TensorMissing { .. }));
}

/// transformers writes the indexes of layers with as many digits as the last one has.
#[test]
fn settings_of_single_layers_are_read_by_index_or_refused() {
    let mut config = sound();
    config["model_type"] = json!("gemma4_text");
    (config["head_dim"], config["num_key_value_heads"], config["num_hidden_layers"]) = (json!(4), json!(1), json!(12));
    let types: Vec<_> = (0..12).map(|i| if i % 6 == 5 { "full_attention" } else { "sliding_attention" }).collect();
    config["layer_types"] = json!(types);
    for (fifth, last) in [("05", "11"), ("5", "11")] {
        config["per_layer_config"] = json!({fifth: {"head_dim": 8}, last: {"head_dim": 8}});
        let error = describe(&config);
        assert!(matches!(error, LoadError::TensorMissing { .. }), "{error:?}");
    }
    config["per_layer_config"] = json!({"5": {"head_dim": 8}});
    let differing = describe(&config).chain();
    config["per_layer_config"] = json!({"last": {"head_dim": 8}});
    let no_index = describe(&config).chain();
    let mut of_llama = sound();
    of_llama["per_layer_config"] = json!({"0": {"head_dim": 8}});
    let errors = [differing, no_index, describe(&of_llama).chain()];
    error_texts::check_rows("config/layers", errors);
}

#[test]
fn sections_of_rope_parameters_per_type_of_layer_are_refused_where_all_layers_have_one() {
    let mut config = sound();
    config["rope_parameters"] = json!({"full_attention": {"rope_theta": 100}});
    let error = describe(&config).chain();
    assert!(error.contains("rope_parameters"), "{error}");
}

#[test]
fn settings_outside_of_text_config_do_not_belong_to_the_language_model() {
    let mut text = sound();
    (text["model_type"], text["num_key_value_heads"]) = (json!("mistral"), json!(2));
    let mut config = json!({"model_type": "mistral3", "text_config": text, "rms_norm_eps": 0, "rope_scaling": []});
    let error = describe(&config);
    assert!(matches!(error, LoadError::TensorMissing { .. }), "{error:?}");
    config["text_config"]["rms_norm_eps"] = json!(0);
    assert!(matches!(describe(&config), LoadError::UnsupportedSetting { .. } | LoadError::Config(_)));
}

#[test]
fn missing_tensors_of_quantized_weights_are_explained_by_the_config() {
    let settings = json!({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": true});
    let mut config = sound();
    config["quantization_config"] = settings;
    let missing = describe(&config);
    config["quantization_config"] = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    let header = r#"{"model.embed_tokens.weight": {"dtype": "F8_E4M3", "shape": [8, 8], "data_offsets": [0, 64]}}"#;
    let other_type = describe_files(config.to_string(), file(header, &[0; 64]));
    let errors = [missing, other_type].map(|error| {
        assert_eq!(error.reason(), Reason::ModelUnsupported, "{error}");
        error.chain()
    });
    error_texts::check_rows("config/quantized", errors);
}

#[test]
fn config_with_invalid_settings_is_rejected() {
    let sound = sound();
    let error = describe(&sound);
    assert!(matches!(error, LoadError::TensorMissing { .. }), "{error:?}");
    error_texts::check("config/sound-without-tensors", error.chain());
    let errors = invalid_settings().into_iter().map(|(setting, value)| {
        let mut config = sound.clone();
        config[setting] = value;
        let error = describe(&config);
        assert!(matches!(error, LoadError::Config(_) | LoadError::UnsupportedSetting { .. }), "{config}: {error:?}");
        error.chain()
    });
    error_texts::check_rows("config/setting", errors);
}

#[test]
fn memory_limits_of_control_groups_count_in_both_versions() {
    let root = TempDir::new().expect("a folder");
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    let left = |groups: &str| left_in_control_groups(root.path(), groups);
    assert_eq!(left("0::/pod/service\n"), None, "there are no files");
    write("pod/service/memory.max", "max\n");
    write("pod/service/memory.current", "900\n");
    assert_eq!(left("0::/pod/service\n"), None, "there is no limit");
    // The limit of an ancestor counts, and pages of files that can be dropped do not.
    write("pod/memory.max", "1000\n");
    write("pod/memory.current", "900\n");
    write("pod/memory.stat", "anon 600\ninactive_file 300\n");
    assert_eq!(left("0::/pod/service\n"), Some(400));
    write("memory/memory.limit_in_bytes", "700\n");
    write("memory/memory.usage_in_bytes", "500\n");
    write("memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n");
    assert_eq!(left("5:cpu,cpuacct:/x\n4:memory:/docker/0123\n"), Some(300), "mounted at the root of a container");
    assert_eq!(left("4:memory:/docker/0123\n0::/pod\n"), Some(300), "the least of both");
    write("memory/memory.usage_in_bytes", "9000\n");
    assert_eq!(left("4:memory:/\n"), Some(0));
}
