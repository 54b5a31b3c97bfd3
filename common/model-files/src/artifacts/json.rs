//! Reads files of bounded size: JSON objects, and texts.

use std::path::Path;
use std::{fs, io};

use serde_json::{Map, Value};

use super::error::ArtifactsError;

/// The maximum size of `tokenizer.json`, twice the largest known.
const MAX_TOKENIZER_BYTES: u64 = 64 << 20;
/// The maximum size of other JSON files. The largest known is a `tokenizer_config.json` of 12 MB
/// with 65,536 added tokens.
const MAX_JSON_BYTES: u64 = 16 << 20;
/// The maximum number of values in a `tokenizer.json`, which need more memory than their text: up
/// to 150 bytes each. The largest known has 1.9 million.
const MAX_TOKENIZER_VALUES: usize = 1 << 22;
/// The maximum number of values in other JSON files.
const MAX_VALUES: usize = 1 << 21;
/// The maximum size of a template file.
const MAX_TEXT_BYTES: u64 = 1 << 20;

pub(super) type Object = Map<String, Value>;

/// Reads a JSON object of a model. Returns None if the file does not exist.
///
/// # Errors
/// The file cannot be read, is too large, is not an object, or has a number that is not finite.
pub fn read_object(path: &Path) -> Result<Option<Object>, ArtifactsError> {
    let Some(text) = read(path, MAX_JSON_BYTES)? else { return Ok(None) };
    let found = values(text.as_bytes());
    if found > MAX_VALUES {
        return Err(ArtifactsError::Values { path: path.to_owned(), found, limit: MAX_VALUES });
    }
    let object: Object =
        serde_json::from_str(&text).map_err(|source| ArtifactsError::Json { path: path.to_owned(), source })?;
    match object.iter().find_map(|(key, value)| infinite(value, key)) {
        Some(field) => Err(ArtifactsError::Field { path: path.to_owned(), field, expected: "a finite number" }),
        None => Ok(Some(object)),
    }
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
    match values(&json) {
        ..=MAX_TOKENIZER_VALUES => Ok(json),
        found => Err(io::Error::other(format!("file has {found} values, limit {MAX_TOKENIZER_VALUES}"))),
    }
}

/// Reads a regular file of at most `limit` bytes. Rejects pipes and devices, which have no end.
pub(super) fn read_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > limit {
        return Err(io::Error::other(format!("file has {} bytes, limit {limit}", metadata.len())));
    }
    fs::read(path)
}

/// Returns at least the number of values in a JSON text: its separators and brackets outside of
/// strings.
fn values(json: &[u8]) -> usize {
    let (mut found, mut is_string, mut is_escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            b',' | b'[' | b'{' if !is_string => found += 1,
            _ => {}
        }
    }
    found
}

/// Returns the path of a number beyond the range of doubles.
fn infinite(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Number(number) if number.as_f64().is_none() => Some(path.to_owned()),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(at, value)| infinite(value, "").map(|inner| format!("{path}[{at}]{inner}"))),
        Value::Object(object) => {
            object.iter().find_map(|(key, value)| infinite(value, "").map(|inner| format!("{path}.{key}{inner}")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{infinite, values};

    #[test]
    fn values_are_counted_outside_of_strings() {
        assert_eq!(values(br#"{"a": [1, 2, {}], "b,[{": "\",[{"}"#), 7);
    }

    #[test]
    fn a_number_beyond_the_range_of_doubles_is_found_by_its_path() {
        let value: serde_json::Value = serde_json::from_str(r#"{"b": [0, {"c": -1e999}]}"#).expect("JSON");
        assert_eq!(infinite(&value, "a").as_deref(), Some("a.b[1].c"));
        assert_eq!(infinite(&json!([1e308, 10, "1e999"]), "a"), None);
    }
}
