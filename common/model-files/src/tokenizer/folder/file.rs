//! The added tokens of a `tokenizer.json`, with the ids that the file states.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use tokenizers::AddedToken;

use crate::tokenizer::error::TokenizerError;

/// An added token, with the id that the file states. The encoder may have given it another one.
#[derive(Deserialize)]
pub(super) struct FileToken {
    pub(super) id: i64,
    #[serde(flatten)]
    pub(super) token: AddedToken,
}

/// Returns the added tokens of a file.
///
/// # Errors
/// The list of tokens is invalid.
pub(super) fn added_tokens(json: &[u8]) -> Result<Vec<FileToken>, TokenizerError> {
    let file: File =
        serde_json::from_slice(json).map_err(|error| TokenizerError::Json { reason: error.to_string() })?;
    Ok(file.0)
}

struct File(Vec<FileToken>);

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FileVisitor)
    }
}

struct FileVisitor;

impl<'de> Visitor<'de> for FileVisitor {
    type Value = File;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    /// Reads the last value of a repeated key, as the library does.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<File, A::Error> {
        let mut tokens = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "added_tokens" {
                tokens = map.next_value()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(File(tokens))
    }
}
