//! Reads files of bounded size: JSON objects as Python reads them, and texts.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::{Map, Value};

use super::error::ArtifactsError;
use crate::python_json::parse;

/// The maximum size of `tokenizer.json`, twice the largest known.
const MAX_TOKENIZER_BYTES: u64 = 64 << 20;
/// The maximum size of other JSON files. The largest known is a `tokenizer_config.json` of 12 MB
/// with 65,536 added tokens.
const MAX_JSON_BYTES: u64 = 16 << 20;
/// The maximum memory of a file's values, as [`memory`] estimates it. With its text, a file takes at
/// most 512 MiB. The largest known `tokenizer.json` has 1.9 million values, with an estimate of 370 MB.
const MAX_MEMORY_BYTES: usize = 448 << 20;
/// The memory of an object with one member.
const OBJECT_BYTES: usize = 400;
/// The memory of a list with one item.
const LIST_BYTES: usize = 300;
/// The memory of a further member or item, without that of its contents.
const ITEM_BYTES: usize = 160;
/// The maximum size of a template file.
const MAX_TEXT_BYTES: u64 = 1 << 20;

pub(super) type Object = Map<String, Value>;

/// Reads a JSON object of a model, as Python's `json` does: `NaN`, infinite numbers and halves of
/// surrogate pairs are valid. Such a number has no value as a double ([`Value::as_f64`] is None), so a
/// setting that needs one is refused where it is read. Half a pair is U+FFFD. Returns None if the file
/// does not exist.
///
/// # Errors
/// The file cannot be read, is too large, or is not an object.
pub fn read_object(path: &Path) -> Result<Option<Object>, ArtifactsError> {
    let Some(text) = read(path, MAX_JSON_BYTES)? else { return Ok(None) };
    let found = memory(text.as_bytes());
    if found > MAX_MEMORY_BYTES {
        return Err(ArtifactsError::Memory { path: path.to_owned(), found, limit: MAX_MEMORY_BYTES });
    }
    parse(text.as_bytes()).map(Some).map_err(|problem| ArtifactsError::Json { path: path.to_owned(), problem })
}

/// Reads a text. Returns None if the file does not exist.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, ArtifactsError> {
    read(path, MAX_TEXT_BYTES)
}

fn read(path: &Path, limit: u64) -> Result<Option<String>, ArtifactsError> {
    let text = read_file(path, limit).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ArtifactsError::Read { path: path.to_owned(), source }),
    }
}

/// Reads a `tokenizer.json`.
///
/// # Errors
/// The file cannot be read, or is too large.
pub(super) fn read_tokenizer(path: &Path) -> io::Result<Vec<u8>> {
    let json = read_file(path, MAX_TOKENIZER_BYTES)?;
    match memory(&json) {
        ..=MAX_MEMORY_BYTES => Ok(json),
        found => Err(io::Error::other(format!("the values of the file take {found} bytes, limit {MAX_MEMORY_BYTES}"))),
    }
}

/// Reads a regular file of at most `limit` bytes. Rejects pipes and devices, which have no end.
pub(super) fn read_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Opening a pipe waits for its writer, so the kind is checked before.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > limit {
        return Err(io::Error::other(format!("file has {size} bytes, limit {limit}")));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    // The file may grow meanwhile.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("file has more than {limit} bytes")));
    }
    Ok(bytes)
}

/// Returns about the memory that the values of a JSON text take, from its separators and brackets
/// outside of strings.
fn memory(json: &[u8]) -> usize {
    let (mut bytes, mut is_string, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b',' => bytes += ITEM_BYTES,
            b'[' => bytes += LIST_BYTES,
            b'{' => bytes += OBJECT_BYTES,
            _ => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{ITEM_BYTES, LIST_BYTES, OBJECT_BYTES, memory, read_file};

    #[test]
    #[cfg(target_os = "linux")]
    fn file_larger_than_its_metadata_is_read_up_to_the_limit() {
        let path = std::path::Path::new("/proc/self/status");
        assert_eq!(path.metadata().expect("a file").len(), 0);
        read_file(path, 1 << 20).expect("it is small");
        let error = read_file(path, 16).expect_err("it is larger");
        assert_eq!(error.to_string(), "file has more than 16 bytes");
    }

    #[test]
    fn memory_of_values_is_estimated_outside_of_strings() {
        let expected = 2 * OBJECT_BYTES + LIST_BYTES + 3 * ITEM_BYTES;
        assert_eq!(memory(br#"{"a": [1, 2, {}], "b,[{": "\",[{"}"#), expected);
    }
}
