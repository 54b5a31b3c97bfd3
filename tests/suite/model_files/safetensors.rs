//! The safetensors reader: the contents of a valid folder, and errors for invalid files.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use tandem_common::status::chain;
use tandem_model_files::artifacts::safetensors::{Checkpoint, Header, SafetensorsError};
use tandem_model_files::tokenizer::CancelScope;
use tandem_tests::error_texts;
use tandem_tests::safetensors_file::{file, folder};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

#[test]
fn tensor_has_the_written_dtype_shape_and_data() {
    let header = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"none":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]}}   "#;
    let folder = folder(&[("model.safetensors", file(header, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]))]);
    let checkpoint = Checkpoint::open(folder.path()).expect("opens");
    let tensor = checkpoint.tensor("b").expect("is there");
    assert_eq!((tensor.dtype, tensor.shape), ("F32", &[2, 1][..]));
    assert_eq!(tensor.data.read().expect("is there"), [5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(checkpoint.tensor("a").expect("is there").data.read().expect("is there"), [1, 2, 3, 4]);
    assert_eq!(checkpoint.tensor("none").expect("is there").shape, [0, 3]);
    assert!(checkpoint.tensor("__metadata__").is_none());
    assert_eq!(checkpoint.names().count(), 3);
}

/// Makes a folder with two files of the tensors `a` and `b`, and this index.
fn two_files(index: &Value) -> TempDir {
    let tensor = |name: &str| format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#);
    let index = json!({"metadata": {"total_size": 2}, "weight_map": index}).to_string();
    folder(&[
        ("1.safetensors", file(&tensor("a"), &[1])),
        ("2.safetensors", file(&tensor("b"), &[2])),
        ("model.safetensors.index.json", index.into_bytes()),
    ])
}

/// transformers uses the index only to find the files. It loads all tensors of each.
#[test]
fn all_tensors_of_the_files_that_the_index_names_are_read() {
    let indexes = [
        json!({"a": "1.safetensors", "b": "2.safetensors"}),
        json!({"a": "1.safetensors", "other": "2.safetensors"}), // without `b`
        json!({"a": "2.safetensors", "b": "1.safetensors"}),
        json!({"a": "1.safetensors", "b": "2.safetensors", "absent": "2.safetensors"}),
        json!({"a": "./1.safetensors", "b": "./2.safetensors", "c": "2.safetensors"}),
    ];
    for index in indexes {
        let folder = two_files(&index);
        let checkpoint = Checkpoint::open(folder.path()).unwrap_or_else(|error| panic!("{index}: {}", chain(&error)));
        for (name, value) in [("a", 1), ("b", 2)] {
            let tensor = checkpoint.tensor(name).unwrap_or_else(|| panic!("{index} without {name}"));
            assert_eq!(tensor.data.read().expect("is there"), [value], "{index}, {name}");
        }
        assert_eq!(checkpoint.names().count(), 2, "{index}");
    }
    let one = two_files(&json!({"a": "1.safetensors"}));
    assert!(Checkpoint::open(one.path()).expect("opens").tensor("b").is_none(), "in a file that is not named");
}

#[test]
fn tensor_of_a_file_that_was_cut_after_its_header_was_read_is_an_error() {
    let bytes = file(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, &[1, 2, 3, 4]);
    let folder = folder(&[("model.safetensors", bytes.clone())]);
    let checkpoint = Checkpoint::open(folder.path()).expect("opens");
    std::fs::write(folder.path().join("model.safetensors"), &bytes[..bytes.len() - 1]).expect("the folder is writable");
    assert!(checkpoint.tensor("a").expect("is there").data.read().is_err());
}

#[test]
fn inconsistent_safetensors_header_is_rejected() {
    let tensor = |dtype: &str, shape: &str, begin: u64, end: u64| {
        format!(r#""t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let one = |entry: String| file(&format!("{{{entry}}}"), &[0; 16]);
    let cases = [
        (vec![0; 7], "safetensors/prefix"),
        (file("{}", &[])[..9].to_vec(), "safetensors/json-length"),
        ((65_u64 << 20).to_le_bytes().to_vec(), "safetensors/long"),
        (u64::MAX.to_le_bytes().to_vec(), "safetensors/longest"),
        (file("[]", &[]), "safetensors/no-object"),
        (file("{\"a\":", &[]), "safetensors/cut-json"),
        (one(tensor("F32", "[2]", 0, 8) + "," + &tensor("F32", "[2]", 8, 16)), "safetensors/repeated"),
        (one(tensor("F32", "[2]", 0, 4)), "safetensors/size"),
        (one(tensor("F32", "[4294967296,4294967296]", 0, 0)), "safetensors/count-overflow"),
        (one(tensor("F64", "[2305843009213693952]", 0, 0)), "safetensors/size-overflow"),
        (one(tensor("F32", "[2]", 12, 20)), "safetensors/outside"),
        (one(tensor("F32", "[2]", 8, 0)), "safetensors/backwards"),
        (one(tensor("F32", "[2]", 0, 18_446_744_073_709_551_615)), "safetensors/offset-overflow"),
    ];
    for (bytes, case) in cases {
        let error = Header::read(&mut &bytes[..], bytes.len() as u64).expect_err(case);
        error_texts::check(case, chain(&error));
    }
}

#[test]
fn tensors_that_overlap_are_refused() {
    let header =
        r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}}"#;
    let bytes = file(header, &[0; 16]);
    let error = Header::read(&mut &bytes[..], bytes.len() as u64).expect_err("overlap");
    error_texts::check("safetensors/overlap", error);
}

#[test]
fn invalid_safetensors_index_is_rejected() {
    let index = |map: Value| ("model.safetensors.index.json", json!({"weight_map": map}).to_string().into_bytes());
    let many: serde_json::Map<String, Value> = (0..4097).map(|i| (format!("t{i}"), json!(format!("f{i}")))).collect();
    let cases = [
        (index(json!({"a": "../a.safetensors"})), "safetensors/parent-folder"),
        (index(json!({"a": "/etc/passwd"})), "safetensors/absolute"),
        (index(json!({"a": "b/"})), "safetensors/folder"),
        (index(json!({"a": ""})), "safetensors/no-name"),
        (index(json!({"a": "b\u{1b}[31m"})), "safetensors/control-character"),
        (index(json!({"a": "."})), "safetensors/this-folder"),
        (index(Value::Object(many)), "safetensors/files"),
        (index(json!({"a": 1})), "safetensors/index-type"),
        (index(json!({"a": "missing.safetensors"})), "safetensors/missing"),
    ];
    for (file, case) in cases {
        let folder = folder(&[file]);
        let error = Checkpoint::open(folder.path()).expect_err(case);
        error_texts::check(case, chain(&error).replace(&folder.path().display().to_string(), "FOLDER"));
    }
    let twice = two_files(&json!({"a": "1.safetensors", "b": "2.safetensors"}));
    std::fs::copy(twice.path().join("1.safetensors"), twice.path().join("2.safetensors")).expect("a file");
    let error = Checkpoint::open(twice.path()).expect_err("both files have `a`");
    error_texts::check("safetensors/two-files", chain(&error).replace(&twice.path().display().to_string(), "FOLDER"));
    let nothing = folder(&[]);
    let error = Checkpoint::open(nothing.path()).expect_err("the folder is empty");
    assert!(matches!(error, SafetensorsError::None { .. }), "{error:?}");
    error_texts::check("safetensors/none", chain(&error).replace(&nothing.path().display().to_string(), "FOLDER"));
}

#[test]
fn files_of_a_cancelled_load_are_not_opened() {
    let folder = two_files(&json!({"a": "1.safetensors", "b": "2.safetensors"}));
    let cancelled = CancellationToken::new();
    let scope = CancelScope::start(cancelled.clone());
    Checkpoint::open(folder.path()).expect("not cancelled yet");
    cancelled.cancel();
    let error = Checkpoint::open(folder.path()).expect_err("cancelled");
    assert!(matches!(error, SafetensorsError::Cancelled), "{error:?}");
    drop(scope);
    Checkpoint::open(folder.path()).expect("outside of the scope");
}

proptest! {
    /// Arbitrary bytes give a result or an error, and every tensor is within the file.
    #[test]
    fn arbitrary_bytes_are_read_or_rejected(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0..200_usize, change in any::<u8>()) {
        let _ = Header::read(&mut &bytes[..], bytes.len() as u64);
        let header = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}}"#;
        bytes.truncate(8);
        let mut sound = file(header, &bytes);
        let place = at % sound.len();
        sound[place] = change;
        let folder = folder(&[("model.safetensors", sound)]);
        if let Ok(checkpoint) = Checkpoint::open(Path::new(folder.path())) {
            for name in checkpoint.names() {
                checkpoint.tensor(name).expect("named").data.read().expect("inside the file");
            }
        }
    }
}
