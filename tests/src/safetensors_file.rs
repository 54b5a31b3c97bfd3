//! Creates safetensors files in memory, and folders with files.

use tempfile::TempDir;

/// Returns a safetensors file: the length of the header, the header, the data.
#[must_use]
pub fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// Makes a temporary folder with these files.
///
/// # Panics
/// Panics if the folder cannot be written.
#[must_use]
pub fn folder(files: &[(&str, Vec<u8>)]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).expect("the temporary folder is writable");
    }
    folder
}
