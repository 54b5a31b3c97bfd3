//! The state of a model's files, to find out whether they changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::config::Settings;

/// Names, sizes and modification times of a model's files, and its settings. Equal stamps mean an
/// unchanged model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    files: Vec<(PathBuf, u64, Option<SystemTime>)>,
    settings: Settings,
}

impl Stamp {
    pub(super) fn of(path: &Path, settings: &Settings) -> Self {
        let mut files = Vec::new();
        add_files(path, &mut files);
        files.sort();
        Self { files, settings: settings.clone() }
    }
}

/// Adds the file at `path`, or the files in that folder and in its folders of further templates and
/// of the maker's encoder.
fn add_files(path: &Path, files: &mut Vec<(PathBuf, u64, Option<SystemTime>)>) {
    let file = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        Some((path, metadata.len(), metadata.modified().ok()))
    };
    files.extend(file(path.to_owned()));
    for folder in [path.to_owned(), path.join("additional_chat_templates"), path.join("encoding")] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        files.extend(entries.filter_map(|entry| file(entry.path())));
    }
}
