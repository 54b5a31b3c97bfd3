//! The search for a model in a folder: the only GGUF file of a folder beside `mmproj` files, whole or
//! in parts, or a snapshot in Hugging Face's cache.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::ArtifactsError;
use super::mmproj::is_mmproj;
use super::names::{CONFIG, FILES, is_pickled};
use crate::gguf::split::PartName;

/// The prefix of a repository's folder in Hugging Face's cache. The rest is `org--repo`.
const CACHED: &str = "models--";
const SNAPSHOTS: &str = "snapshots";

/// Returns the path of a model's files. A folder without model files is searched. It has one
/// `.gguf` file, or it is a repository of Hugging Face's cache, whose branch `main` is selected. A
/// folder with a config is its only `.gguf` file if it has no other weights. Files with a model's
/// tower ([`is_mmproj`]) are not counted. Every other path is returned as it is.
///
/// # Errors
/// A folder contains no model, or several.
pub fn locate(path: &Path) -> Result<PathBuf, ArtifactsError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    if has_model_file(path) {
        return Ok(only_weights(path).unwrap_or_else(|| path.to_owned()));
    }
    if is_cached_repository(path) {
        return locate(&snapshot(path)?);
    }
    let names = names_in(path)?;
    let files: Vec<_> =
        names.iter().filter(|name| is_gguf(Path::new(name)) && !is_later_part(&path.join(name))).collect();
    let is_model = |name: &&String| files.len() == 1 || !is_mmproj(&path.join(name));
    let models: Vec<_> = files.iter().copied().filter(is_model).collect();
    match models[..] {
        [only] => Ok(path.join(only)),
        [] if files.is_empty() => Err(match names.iter().find(|name| name.starts_with(CACHED)) {
            Some(example) => ArtifactsError::Cache { path: path.to_owned(), example: example.clone() },
            None => ArtifactsError::Empty { path: path.to_owned() },
        }),
        [] => Err(several(path, "mmproj files", files.into_iter().cloned())),
        _ => Err(several(path, "models", models.into_iter().cloned())),
    }
}

/// Returns the GGUF file of a folder that has a config, and no weights but that file and towers.
fn only_weights(folder: &Path) -> Option<PathBuf> {
    if !folder.join(CONFIG).exists() {
        return None;
    }
    let paths: Vec<_> = names_in(folder).ok()?.into_iter().map(|name| folder.join(name)).collect();
    let is_model = |path: &Path| is_gguf(path) && !is_later_part(path) && !is_mmproj(path);
    let is_weights = |path: &PathBuf| is_model(path) || is_checkpoint(path);
    let mut weights = paths.into_iter().filter(is_weights);
    weights.next().filter(|first| is_gguf(first) && weights.next().is_none())
}

/// Returns true if a path has a name of the weights that transformers reads.
fn is_checkpoint(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".safetensors") || is_pickled(&name)
}

/// Returns true if a file is a part of a model in GGUF files, and an earlier part is beside it.
#[must_use]
pub fn is_later_part(path: &Path) -> bool {
    let Some(name) = PartName::of(path).filter(|_| is_gguf(path)) else { return false };
    (1..name.number).any(|number| name.part(path, number).exists())
}

/// Returns a model's name: the name of a `.gguf` file without the extension and the number of the
/// part, `org/repo` for a
/// snapshot in Hugging Face's cache, else the folder's name.
#[must_use]
pub fn model_name(path: &Path) -> String {
    if is_gguf(path) {
        let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        return PartName::of(path).map_or_else(stem, |part| part.model);
    }
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let last = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let cached = full.parent().filter(|parent| parent.ends_with(SNAPSHOTS)).and_then(Path::parent).map(last);
    match cached.as_deref().and_then(|repository| repository.strip_prefix(CACHED)) {
        Some(repository) => repository.replace("--", "/"),
        None => last(&full),
    }
}

/// Returns true if a path has the extension of a GGUF file.
pub(super) fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// Returns true if a folder contains a known model file.
pub(super) fn has_model_file(folder: &Path) -> bool {
    FILES.iter().any(|file| folder.join(file).exists())
}

/// Returns true if a folder is a repository of Hugging Face's cache.
#[must_use]
pub fn is_cached_repository(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(CACHED) && folder.join(SNAPSHOTS).is_dir()
}

/// Returns the error of a path that does not exist.
#[must_use]
pub fn absent(path: &Path) -> ArtifactsError {
    let (may_be, path) = (may_be_repository(path), path.to_owned());
    if may_be { ArtifactsError::Repository { path } } else { ArtifactsError::Absent { path } }
}

/// Returns true if an absent path may be the name of a repository, such as `Qwen/Qwen3-0.6B`: two words, and no folder
/// of the first one.
fn may_be_repository(path: &Path) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_word = |part: &str| part.contains(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(is_letter);
    let parts = path.to_str().and_then(|path| path.split_once('/'));
    parts.is_some_and(|(owner, name)| is_word(owner) && is_word(name) && !Path::new(owner).exists())
}

/// Returns the snapshot of the branch `main`, or the only snapshot.
fn snapshot(repository: &Path) -> Result<PathBuf, ArtifactsError> {
    let snapshots = repository.join(SNAPSHOTS);
    let revision = fs::read_to_string(repository.join("refs/main")).unwrap_or_default();
    let main = snapshots.join(revision.trim());
    if !revision.trim().is_empty() && main.is_dir() {
        return Ok(main);
    }
    let names = names_in(&snapshots)?;
    match &names[..] {
        [only] => Ok(snapshots.join(only)),
        [] => Err(ArtifactsError::Empty { path: repository.to_owned() }),
        _ => Err(several(&snapshots, "snapshots", names)),
    }
}

/// Returns the names in a folder, sorted.
fn names_in(folder: &Path) -> Result<Vec<String>, ArtifactsError> {
    let failed = |source| ArtifactsError::Read { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

fn several(path: &Path, kind: &'static str, names: impl IntoIterator<Item = String>) -> ArtifactsError {
    ArtifactsError::Several { path: path.to_owned(), kind, names: names.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{may_be_repository, model_name};

    #[test]
    fn two_words_without_such_a_folder_may_be_a_repository() {
        let may_be = |path: &str| may_be_repository(Path::new(path));
        assert!(may_be("Qwen/Qwen3-0.6B") && may_be("org_1/a.b"));
        let others = ["Qwen", "/Qwen/Qwen3", "./Qwen", "../Qwen", "a/b/c", "a/", "a b/c", "src/absent", "a/..", ""];
        assert_eq!(others.map(may_be), [false; 10]);
    }

    #[test]
    fn a_model_is_named_after_its_file_its_folder_or_its_repository_in_a_hugging_face_cache() {
        assert_eq!(model_name(Path::new("/models/tiny")), "tiny");
        assert_eq!(model_name(Path::new("/models/tiny-1.5.Q4_1.GGUF")), "tiny-1.5.Q4_1");
        assert_eq!(model_name(Path::new("/models/tiny-00002-of-00003.gguf")), "tiny");
        assert_eq!(model_name(Path::new("/hub/models--org--a-model/snapshots/0123abcd")), "org/a-model");
        assert_eq!(model_name(Path::new("/hub/other/snapshots/0123abcd")), "0123abcd");
    }
}
