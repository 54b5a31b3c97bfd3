//! Models in several GGUF files.

use std::path::{Path, PathBuf};

use tandem_common::status::chain;
use tandem_model_files::artifacts::{Artifacts, is_later_part};
use tandem_model_files::gguf::{Gguf, GgufError};
use tandem_model_files::tokenizer::CancelScope;
use tandem_tests::error_texts;
use tandem_tests::gguf_file::File;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Returns part `number` of `count`, from 0, with one tensor, of `tensors` in all parts.
fn part(number: u32, count: u32, tensors: u32) -> File {
    let file = if number == 0 { File::new().text("general.architecture", "llama") } else { File::new() };
    file.u32("split.no", number).u32("split.count", count).u32("split.tensors.count", tensors).weights(
        &format!("t{number}"),
        &[2],
        |place| (number as u64 * 10 + place) as f32,
    )
}

fn path(folder: &TempDir, number: u32, count: u32) -> PathBuf {
    folder.path().join(format!("m-{number:05}-of-{count:05}.gguf"))
}

/// Makes a folder with two parts.
fn two() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for number in 0..2 {
        part(number, 2, 2).write_to(&path(&folder, number + 1, 2));
    }
    folder
}

#[test]
fn parts_are_opened_from_any_of_them_in_their_order() {
    let folder = two();
    for number in 1..=2 {
        let model = Gguf::open_all(&path(&folder, number, 2)).expect("all parts");
        assert_eq!(model.get::<&str>("general.architecture").expect("of the first part"), "llama");
        let names: Vec<_> = model.tensors().map(|tensor| tensor.name).collect();
        assert_eq!(names, ["t0", "t1"]);
        for (name, first) in [("t0", 0.0_f32), ("t1", 10.0)] {
            let bytes = model.tensor(name).expect("a tensor").data.read().expect("bytes");
            assert_eq!(bytes[..4], first.to_le_bytes(), "{name}");
        }
    }
}

#[test]
fn parts_in_a_folder_are_one_model_with_one_name() {
    let folder = two();
    for given in [folder.path().to_owned(), path(&folder, 1, 2), path(&folder, 2, 2)] {
        let model = Artifacts::load(&given).expect("a model");
        assert_eq!((model.name.as_str(), model.architecture.as_deref()), ("m", Some("llama")));
    }
    assert!(!is_later_part(&path(&folder, 1, 2)));
    assert!(is_later_part(&path(&folder, 2, 2)));
    std::fs::write(folder.path().join("m.generation_config.json"), r#"{"top_k": 7}"#).expect("a file");
    let model = Artifacts::load(&path(&folder, 2, 2)).expect("a model");
    assert_eq!(model.sampling_defaults().expect("defaults").top_k, Some(7));
    std::fs::write(folder.path().join("config.json"), "{}").expect("a file");
    assert!(Artifacts::load(folder.path()).expect("a model").gguf().is_some());
}

/// Files of one part, and files without keys of parts, keep their tensors.
#[test]
fn a_file_that_is_the_whole_model_may_have_any_name() {
    let folder = TempDir::new().expect("a temporary folder");
    part(0, 1, 1).write_to(&path(&folder, 1, 1));
    part(0, 0, 1).write_to(&folder.path().join("other.gguf"));
    File::new().weights("t0", &[2], |_| 0.0).write_to(&path(&folder, 1, 3));
    for given in [path(&folder, 1, 1), folder.path().join("other.gguf"), path(&folder, 1, 3)] {
        assert_eq!(Gguf::open_all(&given).expect("a model").tensors().count(), 1, "{}", given.display());
    }
}

fn refused(folder: &TempDir, given: &Path) -> String {
    let error = Artifacts::load(given).expect_err("a refused model");
    chain(&error).replace(&folder.path().display().to_string(), "FOLDER")
}

#[test]
fn parts_that_are_missing_or_of_other_models_are_named() {
    let changed = |change: &dyn Fn(&TempDir)| {
        let folder = two();
        change(&folder);
        [1, 2]
            .map(|number| path(&folder, number, 2))
            .iter()
            .find(|path| path.exists())
            .map(|path| refused(&folder, path))
    };
    let write = |file: File| move |folder: &TempDir| file.write_to(&path(folder, 2, 2));
    let texts = [
        changed(&|folder| std::fs::remove_file(path(folder, 2, 2)).expect("a file")),
        changed(&|folder| std::fs::remove_file(path(folder, 1, 2)).expect("a file")),
        changed(&|folder| std::fs::write(path(folder, 2, 2), "GGML").expect("a file")),
        changed(&write(part(1, 3, 2))),
        changed(&write(part(1, 2, 3))),
        changed(&write(part(0, 2, 2))),
        changed(&write(File::new().weights("t1", &[2], |_| 0.0))),
        changed(&write(part(1, 2, 2).weights("t2", &[2], |_| 0.0))),
        changed(&write(part(1, 2, 2).weights("t0", &[2], |_| 0.0))),
        changed(&write(File::new().u32("split.no", 1).u32("split.count", 2))),
        changed(&|folder| part(0, 3, 2).write_to(&path(folder, 1, 2))),
        changed(&|folder| part(0, 2, u32::MAX).write_to(&path(folder, 1, 2))),
        changed(&|folder| part(u32::MAX, 2, 2).write_to(&path(folder, 1, 2))),
    ];
    error_texts::check_rows("gguf/parts", texts.into_iter().flatten());
}

#[test]
fn parts_of_a_cancelled_load_are_not_opened() {
    let folder = two();
    let cancelled = CancellationToken::new();
    let _scope = CancelScope::start(cancelled.clone());
    Gguf::open_all(&path(&folder, 1, 2)).expect("not cancelled yet");
    cancelled.cancel();
    assert!(matches!(Gguf::open_all(&path(&folder, 1, 2)), Err(GgufError::Cancelled)));
}
