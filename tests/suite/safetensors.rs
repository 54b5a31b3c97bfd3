//! The safetensors reader: what a sound folder holds, and that a lying file costs an error and nothing else.

use std::path::Path;

use gen_svc::models;
use gen_svc::weights::ModelFile;
use proptest::prelude::*;
use serde_json::{Value, json};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::artifacts::safetensors::{Checkpoint, Header, SafetensorsError};
use tempfile::TempDir;

use crate::error_texts::{self, golden};

/// A file: the length of the header, the header, the data.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

fn folder(files: &[(&str, Vec<u8>)]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).expect("a file");
    }
    folder
}

#[test]
fn a_tensor_is_what_was_written() {
    let header = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"none":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]}}   "#;
    let folder = folder(&[("model.safetensors", file(header, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]))]);
    let checkpoint = Checkpoint::open(folder.path()).expect("opens");
    let tensor = checkpoint.tensor("b").expect("is there");
    assert_eq!((tensor.dtype, tensor.shape, tensor.data), ("F32", &[2, 1][..], &[5, 6, 7, 8, 9, 10, 11, 12][..]));
    assert_eq!(checkpoint.tensor("a").expect("is there").data, [1, 2, 3, 4]);
    assert_eq!(checkpoint.tensor("none").expect("is there").shape, [0, 3]);
    assert!(checkpoint.tensor("__metadata__").is_none());
    assert_eq!(checkpoint.names().count(), 3);
}

#[test]
fn a_header_that_lies_is_refused() {
    let tensor = |dtype: &str, shape: &str, begin: u64, end: u64| {
        format!(r#""t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let one = |entry: String| file(&format!("{{{entry}}}"), &[0; 16]);
    let cases = [
        (vec![0; 7], "prefix"),
        (file("{}", &[])[..9].to_vec(), "json-length"),
        ((65_u64 << 20).to_le_bytes().to_vec(), "long"),
        (u64::MAX.to_le_bytes().to_vec(), "longest"),
        (file("[]", &[]), "no-object"),
        (file("{\"a\":", &[]), "cut-json"),
        (one(tensor("F32", "[2]", 0, 8) + "," + &tensor("F32", "[2]", 8, 16)), "repeated"),
        (one(tensor("F32", "[2]", 0, 4)), "size"),
        (one(tensor("F32", "[4294967296,4294967296]", 0, 0)), "count-overflow"),
        (one(tensor("F64", "[2305843009213693952]", 0, 0)), "size-overflow"),
        (one(tensor("F32", "[2]", 12, 20)), "outside"),
        (one(tensor("F32", "[2]", 8, 0)), "backwards"),
        (one(tensor("F32", "[2]", 0, 18_446_744_073_709_551_615)), "offset-overflow"),
    ];
    for (bytes, case) in cases {
        let error = Header::read(&bytes).expect_err(case);
        let expected = golden(&format!("safetensors/{case}"));
        assert!(chain(&error).starts_with(expected), "{case}: {} instead of {expected}", chain(&error));
    }
}

#[test]
fn tensors_that_overlap_are_refused() {
    let header =
        r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}}"#;
    let error = Header::read(&file(header, &[0; 16])).expect_err("overlap");
    error_texts::check("safetensors/overlap", &error.to_string());
}

#[test]
fn an_index_that_lies_is_refused() {
    let index = |map: Value| ("model.safetensors.index.json", json!({"weight_map": map}).to_string().into_bytes());
    let many: serde_json::Map<String, Value> = (0..4097).map(|i| (format!("t{i}"), json!(format!("f{i}")))).collect();
    let cases = [
        (index(json!({"a": "../a.safetensors"})), "parent-folder"),
        (index(json!({"a": "/etc/passwd"})), "absolute"),
        (index(json!({"a": "b/"})), "folder"),
        (index(json!({"a": ""})), "no-name"),
        (index(json!({"a": "."})), "this-folder"),
        (index(Value::Object(many)), "files"),
        (index(json!({"a": 1})), "index-type"),
        (index(json!({"a": "missing.safetensors"})), "missing"),
    ];
    for (file, case) in cases {
        let folder = folder(&[file]);
        let error = Checkpoint::open(folder.path()).expect_err(case);
        let expected = golden(&format!("safetensors/{case}"));
        assert!(chain(&error).ends_with(expected), "{case}: {} instead of {expected}", chain(&error));
    }
    let nothing = folder(&[]);
    assert!(matches!(Checkpoint::open(nothing.path()), Err(SafetensorsError::None { .. })));
}

/// Loads a folder with this config and no tensors.
fn describe(config: &Value) -> String {
    let config = config.to_string().into_bytes();
    let folder = folder(&[("config.json", config), ("model.safetensors", file("{}", &[]))]);
    let artifacts = Artifacts::load(folder.path()).expect("artifacts");
    let error = models::describe(&ModelFile::new(&artifacts).expect("files")).expect_err("no tensors");
    error.chain()
}

/// Settings, the values that they cannot have, and what is said about them.
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

proptest! {
    /// Whatever the bytes, there is an answer, and every tensor lies in the file.
    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0..200_usize, change in any::<u8>()) {
        let _ = Header::read(&bytes);
        let header = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}}"#;
        bytes.truncate(8);
        let mut sound = file(header, &bytes);
        let place = at % sound.len();
        sound[place] = change;
        let folder = folder(&[("model.safetensors", sound)]);
        if let Ok(checkpoint) = Checkpoint::open(Path::new(folder.path())) {
            checkpoint.names().for_each(|name| drop(checkpoint.tensor(name).expect("named").data.to_vec()));
        }
    }
}
