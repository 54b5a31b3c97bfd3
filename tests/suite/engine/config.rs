//! Invalid settings of config.json.

use gen_svc::models;
use serde_json::{Value, json};
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::safetensors_file::{file, folder};

/// Loads a folder with this config and no tensors.
fn describe(config: &Value) -> String {
    let config = config.to_string().into_bytes();
    let folder = folder(&[("config.json", config), ("model.safetensors", file("{}", &[]))]);
    let artifacts = Artifacts::load(folder.path()).expect("artifacts");
    let error = models::describe(&models::open(&artifacts).expect("files")).expect_err("no tensors");
    error.chain()
}

/// Returns settings, an invalid value of each, and the error.
fn absurd_settings() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("hidden_size", json!(-1), "the model's config has hidden_size = -1, which is not supported"),
        (
            "hidden_size",
            json!(1_u64 << 60),
            "the model's config has hidden_size = 1152921504606846976, which is not supported",
        ),
        (
            "hidden_size",
            json!("8"),
            r#"the model's config is not readable: hidden_size should be a whole number, but is "8""#,
        ),
        (
            "hidden_size",
            json!(8.5),
            "the model's config is not readable: hidden_size should be a whole number, but is 8.5",
        ),
        ("vocab_size", json!(null), "the model's config is not readable: missing field `vocab_size`"),
        (
            "num_hidden_layers",
            json!(16_000_000),
            "the model's config has num_hidden_layers = 16000000, which is not supported",
        ),
        (
            "num_attention_heads",
            json!(1 << 20),
            "the model's config has num_attention_heads = 1048576, which is not supported",
        ),
        (
            "num_key_value_heads",
            json!(3),
            "the model's config has num_key_value_heads = 3 for 2 query heads, which is not supported",
        ),
        ("head_dim", json!(7), "the model's config has head_dim = 7, which is not supported"),
        ("rms_norm_eps", json!(0), "the model's config has rms_norm_eps = 0, which is not supported"),
        ("rope_theta", json!(1e300), "the model's config has rope_theta = 1e+300, which is not supported"),
        ("rope_theta", json!(-1), "the model's config has rope_theta = -1, which is not supported"),
        ("hidden_act", json!("relu"), r#"the model's config has hidden_act = "relu", which is not supported"#),
        (
            "attention_bias",
            json!(1),
            "the model's config is not readable: attention_bias should be true or false, but is 1",
        ),
        ("rope_scaling", json!([]), "the model's config is not readable: rope_scaling should be an object, but is []"),
        (
            "rope_scaling",
            json!({"type": "yarn"}),
            r#"the model's config has rope_type = "yarn", which is not supported"#,
        ),
        ("rope_scaling", json!({"type": "linear"}), "the model's config is not readable: missing field `factor`"),
        (
            "rope_parameters",
            json!({"rope_type": "dynamic"}),
            r#"the model's config has rope_type = "dynamic", which is not supported"#,
        ),
        (
            "rope_scaling",
            json!({"type": "llama3", "factor": 1e-40, "low_freq_factor": 1, "high_freq_factor": 1, "original_max_position_embeddings": 1}),
            "the model's config has rope_parameters = what makes a frequency inf, which is not supported",
        ),
    ]
}

#[test]
fn a_config_with_absurd_settings_is_refused() {
    let sound = json!({
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": 8, "max_position_embeddings": 64, "rope_theta": 1e4,
    });
    assert_eq!(describe(&sound), "tensor model.embed_tokens.weight is missing");
    for (setting, value, expected) in absurd_settings() {
        let mut config = sound.clone();
        config[setting] = value;
        assert_eq!(describe(&config), expected);
    }
}
