//! The GGUF reader: the contents of a valid file, and errors for invalid files.

use tandem_model_files::gguf::{Array, GgmlType, Gguf, GgufError, Value};
use tandem_tests::error_texts;
use tandem_tests::gguf_file::{ARRAY, BOOL, File, I32, STRING, U8, U64, array, open, string};

#[track_caller]
fn refused(bytes: &[u8], case: &str) {
    let error = open(bytes).expect_err(case);
    error_texts::check(case, error);
}

/// Returns a valid file with two tensors.
fn sound() -> File {
    File::new()
        .text("general.architecture", "llama")
        .u32("llama.block_count", 2)
        .strings("tokenizer.ggml.tokens", &["a", "bc", ""])
        .tensor("small", &[3, 2], 0, 0)
        .tensor("blocks", &[64, 2], 3, 32)
        .data(32 + 80)
}

#[test]
fn every_metadata_type_is_read() {
    let nested = [array(U8, 2, &[1, 2]), array(STRING, 1, &string("x"))].concat();
    let file = File::new()
        .entry("u8", U8, &[200])
        .entry("i8", 1, &[0xFF])
        .entry("u16", 2, &500u16.to_le_bytes())
        .entry("i16", 3, &(-500i16).to_le_bytes())
        .u32("u32", 70_000)
        .entry("i32", I32, &(-70_000i32).to_le_bytes())
        .f32("f32", 0.5)
        .bool("bool", true)
        .text("string", "grüße")
        .entry("u64", U64, &(1u64 << 40).to_le_bytes())
        .entry("i64", 11, &(-1i64 << 40).to_le_bytes())
        .entry("f64", 12, &0.25f64.to_le_bytes())
        .entry("array", ARRAY, &array(ARRAY, 2, &nested))
        .open()
        .expect("valid");
    let expected = [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-1)),
        ("u16", Value::U16(500)),
        ("i16", Value::I16(-500)),
        ("u32", Value::U32(70_000)),
        ("i32", Value::I32(-70_000)),
        ("f32", Value::F32(0.5)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("grüße".to_owned())),
        ("u64", Value::U64(1 << 40)),
        ("i64", Value::I64(-1 << 40)),
        ("f64", Value::F64(0.25)),
        ("array", Value::Array(Array::Array(vec![Array::U8(vec![1, 2]), Array::String(vec!["x".to_owned()])]))),
    ];
    for (key, value) in expected {
        assert_eq!(file.metadata(key), Some(&value), "{key}");
    }
}

#[test]
fn tensors_have_row_major_dims_and_their_own_bytes() {
    let path = sound().write();
    let file = Gguf::open(&path).expect("valid");
    let small = file.tensor("small").expect("it is there");
    assert_eq!((small.dims, small.dtype, small.data.len()), (&[2, 3][..], GgmlType::F32, 24));
    let blocks = file.tensor("blocks").expect("it is there");
    assert_eq!((blocks.dims, blocks.dtype, blocks.data.len()), (&[2, 64][..], GgmlType::Q4_1, 80));
    let (small, data) = (small.data.read().expect("is there"), blocks.data.read().expect("is there"));
    assert_eq!((small[0], data[0], data[79]), (0, 32, 111));
    assert_eq!(blocks.data.part(78..80).read().expect("is there"), [110, 111]);
    assert_eq!(file.tensors().map(|tensor| tensor.name).collect::<Vec<_>>(), ["small", "blocks"]);
    assert!(file.tensor("large").is_none());
    std::fs::remove_file(path).expect("the file is there");
}

#[test]
fn alignment_is_read_from_the_file_header() {
    let mut file = File::new().u32("general.alignment", 128).tensor("far", &[4], 24, 128).data(132);
    file.alignment = 128;
    let path = file.write();
    let file = Gguf::open(&path).expect("valid");
    assert_eq!(file.tensor("far").expect("is there").data.read().expect("is there"), [128, 129, 130, 131]);
    std::fs::remove_file(path).expect("the file is there");
}

#[test]
fn file_without_tensors_is_valid() {
    assert_eq!(File::new().open().expect("valid").tensors().count(), 0);
}

#[test]
fn getter_errors_name_key_expected_type_and_found_value() {
    let file = sound().entry("wide", U64, &(1u64 << 33).to_le_bytes()).open().expect("valid");
    assert_eq!(file.get::<u32>("llama.block_count").ok(), Some(2));
    assert_eq!(file.find::<u32>("llama.expert_count").ok(), Some(None));
    let message = |result: Result<u32, GgufError>| result.expect_err("not a number").to_string();
    error_texts::check("gguf/missing-key", message(file.get("llama.expert_count")));
    error_texts::check("gguf/string-for-integer", message(file.get("general.architecture")));
    error_texts::check("gguf/integer-out-of-range", message(file.get("wide")));
    error_texts::check("gguf/strings-for-integer", message(file.get("tokenizer.ggml.tokens")));
}

#[test]
fn file_that_is_not_gguf_is_rejected() {
    refused(b"", "gguf/empty");
    refused(b"PK\x03\x04", "gguf/magic");
    let mut file = sound();
    file.version = 1;
    refused(&file.bytes(), "gguf/version");
    file.version = 3u32.swap_bytes();
    refused(&file.bytes(), "gguf/big-endian");
}

#[test]
fn oversized_counts_are_rejected_before_allocation() {
    let mut file = sound();
    file.tensor_count = u64::MAX;
    refused(&file.bytes(), "gguf/tensor-count");
    let mut file = sound();
    file.entry_count = 1 << 40;
    refused(&file.bytes(), "gguf/entry-count");
}

#[test]
fn oversized_lengths_are_rejected_before_allocation() {
    let long = u64::MAX.to_le_bytes();
    refused(&File::new().entry("k", STRING, &long).bytes(), "gguf/string-length");
    for (kind, case) in
        [(U8, "gguf/u8-count"), (U64, "gguf/u64-count"), (STRING, "gguf/string-count"), (ARRAY, "gguf/array-count")]
    {
        refused(&File::new().entry("k", ARRAY, &array(kind, u64::MAX, &[])).bytes(), case);
    }
    let bytes = File::new().entry("k", ARRAY, &array(BOOL, u64::MAX, &[])).bytes();
    refused(&bytes, "gguf/bool-count");
}

/// Opens a file that starts like this one and continues with 1 GiB of zeros, which take no space on
/// disk.
#[track_caller]
fn sparse(start: &File) -> GgufError {
    let path = start.write();
    let file = std::fs::OpenOptions::new().append(true).open(&path).expect("the file is there");
    file.set_len(1 << 30).expect("the file can grow");
    let opened = Gguf::open(&path);
    std::fs::remove_file(path).expect("the file is there");
    opened.expect_err("the counts are above the limits")
}

#[test]
fn sparse_files_whose_counts_fit_into_them_are_rejected_by_limits() {
    let of_array = |kind: u32, len: u64| File::new().entry("k", ARRAY, &array(kind, len, &[]));
    let mut many_entries = sound();
    many_entries.entry_count = 1 << 26;
    let mut many_tensors = sound();
    many_tensors.tensor_count = 1 << 25;
    let many_arrays =
        (0..5).fold(File::new(), |file, i| file.entry(&format!("k{i}"), ARRAY, &array(U8, 1 << 20, &vec![0; 1 << 20])));
    let long = vec!["x".repeat(5 << 20); 13];
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let errors = [
        of_array(STRING, 134_000_000),
        of_array(ARRAY, 80_000_000),
        of_array(U8, 1_000_000_000),
        of_array(U64, 130_000_000),
        of_array(BOOL, 1_000_000_000),
        many_arrays,
        File::new().entry("k", STRING, &(1_u64 << 29).to_le_bytes()),
        File::new().strings("k", &long),
        many_entries,
        many_tensors,
    ]
    .map(|file| sparse(&file));
    assert!(errors.iter().all(|error| matches!(error, GgufError::Limit { .. })), "{errors:?}");
    error_texts::check_rows("gguf/limit", errors);
}

#[test]
fn floats_that_are_not_finite_are_rejected_by_key() {
    let file = File::new()
        .f32("nan", f32::NAN)
        .f32("infinite", f32::NEG_INFINITY)
        .entry("large", 12, &1e300_f64.to_le_bytes())
        .open()
        .expect("valid");
    let errors = ["nan", "infinite", "large"].map(|key| file.find::<f32>(key).expect_err("not finite"));
    error_texts::check_rows("gguf/not-finite", errors);
}

#[test]
fn tensor_of_a_file_that_was_changed_after_its_header_was_read_is_an_error() {
    let changes: [fn(&std::path::Path); 4] = [
        |path| File::new().write_to(path),
        |path| std::fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(8)).expect("cut"),
        |path| {
            let other = path.with_extension("new");
            sound().write_to(&other);
            std::fs::rename(other, path).expect("replaced");
        },
        |path| std::fs::remove_file(path).expect("removed"),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for is_read_before in [false, true] {
            let path = sound().write();
            let file = Gguf::open(&path).expect("valid");
            let blocks = file.tensor("blocks").expect("is there").data;
            if is_read_before {
                assert_eq!(blocks.read().expect("is there").len(), 80);
            }
            change(&path);
            // A file that is open stays readable after it was replaced or removed.
            assert_eq!(blocks.read().is_ok(), is_read_before && number >= 2, "change {number}");
            let _ = std::fs::remove_file(path);
        }
    }
}

#[test]
fn array_nesting_depth_is_limited() {
    let nested = |depth: usize| (1..depth).fold(array(U8, 0, &[]), |inner, _| array(ARRAY, 1, &inner));
    assert!(open(&File::new().entry("k", ARRAY, &nested(4)).bytes()).is_ok());
    refused(&File::new().entry("k", ARRAY, &nested(5)).bytes(), "gguf/depth");
    assert!(open(&File::new().entry("k", ARRAY, &nested(100_000)).bytes()).is_err());
}

#[test]
fn unknown_types_and_invalid_utf8_are_rejected() {
    refused(&File::new().entry("k", 13, &[]).bytes(), "gguf/value-type");
    refused(&File::new().entry("k", ARRAY, &array(77, 0, &[])).bytes(), "gguf/element-type");
    let broken = [&2u64.to_le_bytes()[..], &[0xC3, 0x28]].concat();
    refused(&File::new().entry("k", STRING, &broken).bytes(), "gguf/utf8");
    refused(&sound().tensor("t", &[32], 4, 0).bytes(), "gguf/tensor-type");
}

#[test]
fn repeated_keys_and_tensors_are_rejected() {
    let file = File::new().u32("k", 1).u32("k", 2);
    refused(&file.bytes(), "gguf/repeated-key");
    refused(&sound().tensor("small", &[1], 0, 0).bytes(), "gguf/repeated-tensor");
}

#[test]
fn invalid_tensor_shapes_are_rejected() {
    let check = |dims: &[u64], kind: u32, case: &str| {
        refused(&File::new().tensor("t", dims, kind, 0).data(64).bytes(), case);
    };
    check(&[1; 5], 0, "gguf/rank");
    check(&[33], 3, "gguf/partial-block");
    let huge = 1 << 62;
    check(&[huge, huge], 0, "gguf/large-matrix");
    check(&[1 << 32, 1 << 32, 4], 24, "gguf/large-cube");
}

#[test]
fn tensor_data_outside_the_file_or_unaligned_is_rejected() {
    let check = |offset: u64, case: &str| {
        refused(&File::new().tensor("t", &[16], 0, offset).data(64).bytes(), case);
    };
    check(32, "gguf/outside");
    check(4, "gguf/unaligned");
    check(u64::MAX - 31, "gguf/overflow");
}

#[test]
fn invalid_alignment_is_rejected() {
    let errors = [0, 3, 4, 48, 1 << 30].map(|found| {
        let file = sound().u32("general.alignment", found);
        file.open().expect_err("the alignment is out of range")
    });
    error_texts::check_rows("gguf/alignment", errors);
}

#[test]
fn every_truncated_file_is_rejected() {
    let bytes = sound().bytes();
    for len in 0..bytes.len() {
        assert!(open(&bytes[..len]).is_err(), "{len} bytes of {}", bytes.len());
    }
}

#[test]
fn changed_byte_is_read_within_the_file_or_rejected() {
    let bytes = sound().bytes();
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut broken = bytes.clone();
            broken[at] = value;
            if let Ok(file) = open(&broken) {
                let read: usize = file.tensors().map(|tensor| tensor.data.len()).sum();
                assert!(read <= broken.len() * file.tensors().count());
            }
        }
    }
}

#[test]
fn default_model_metadata_and_tensors_are_read() {
    let file = Gguf::open(&tandem_tests::default_model()).expect("the default model");
    assert_eq!((file.version(), file.tensors().count()), (3, 272));
    let embedding = file.tensor("token_embd.weight").expect("it is there");
    assert_eq!((embedding.dims, embedding.dtype), (&[49_152, 576][..], GgmlType::Q8_0));
    let down = file.tensor("blk.0.ffn_down.weight").expect("it is there");
    assert_eq!((down.dims, down.dtype), (&[576, 1536][..], GgmlType::Q4_1));
    assert_eq!(file.get::<f32>("llama.rope.freq_base").ok(), Some(100_000.0));
}
