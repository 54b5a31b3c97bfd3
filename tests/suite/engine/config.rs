//! Invalid settings of config.json, and limits of memory.

use std::fs;

use serde_json::{Value, json};
use tandem_core::engine::left_in_control_groups;
use tandem_core::error::LoadError;
use tandem_core::models;
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::error_texts;
use tandem_tests::safetensors_file::{file, folder};
use tempfile::TempDir;

/// Loads a folder with this config and no tensors.
fn describe(config: &Value) -> LoadError {
    let config = config.to_string().into_bytes();
    let folder = folder(&[("config.json", config), ("model.safetensors", file("{}", &[]))]);
    let artifacts = Artifacts::load(folder.path()).expect("the folder has a config");
    models::describe(&models::open(&artifacts).expect("the files are valid")).expect_err("the folder has no tensors")
}

/// Returns settings with an invalid value of each.
fn invalid_settings() -> Vec<(&'static str, Value)> {
    vec![
        ("hidden_size", json!(-1)),
        ("hidden_size", json!(1_u64 << 60)),
        ("hidden_size", json!("8")),
        ("hidden_size", json!(8.5)),
        ("vocab_size", json!(null)),
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
    ]
}

#[test]
fn config_with_invalid_settings_is_rejected() {
    let sound = json!({
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": 8, "max_position_embeddings": 64, "rope_theta": 1e4,
    });
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
