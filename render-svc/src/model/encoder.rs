//! The source of the encoder that a maker ships beside the weights instead of a chat template. It is
//! never run: adapters recognize its revision by the texts that it contains.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The folder of a repository with the encoder, and the start and end of the encoder's file name.
const FOLDER: &str = "encoding";
const NAME: (&str, &str) = ("encoding", ".py");

/// The most files, and the most bytes of each. Known encoders have one file of 30 KiB.
const MAX_FILES: usize = 4;
const MAX_BYTES: u64 = 256 << 10;

/// Returns the source of the encoder in a model's folder, if there is one.
pub(super) fn source(model: &Path) -> Option<String> {
    let entries = fs::read_dir(model.join(FOLDER)).ok()?.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| is_encoder(path)).collect();
    files.sort();
    let sources: Vec<_> = files.iter().take(MAX_FILES).filter_map(|path| start_of(path)).collect();
    (!sources.is_empty()).then(|| sources.join("\n"))
}

fn is_encoder(path: &Path) -> bool {
    let (start, end) = NAME;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(start) && name.ends_with(end) && path.is_file()
}

fn start_of(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
