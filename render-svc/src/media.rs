//! Media blocks: images, sound and video in the spellings that callers use, read into one form.
//!
//! A block names its kind in `type`, and its data under `base64`, under `url` or `path`, or under a key called like its type, as in
//! OpenAI's `{"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}` and
//! `{"type": "input_audio", "input_audio": {"data": "…", "format": "wav"}}`.

use serde_json::Value;

use crate::adapters::{MediaKind, MediaSource};
use crate::chat::{self, Object};

/// The types of blocks of each kind.
const TYPES: &[(&str, MediaKind)] = &[
    ("image", MediaKind::Image),
    ("image_url", MediaKind::Image),
    ("input_image", MediaKind::Image),
    ("audio", MediaKind::Audio),
    ("audio_url", MediaKind::Audio),
    ("input_audio", MediaKind::Audio),
    ("video", MediaKind::Video),
    ("video_url", MediaKind::Video),
];

/// Keys that hold data or its place, in order of precedence.
const KEYS: &[&str] =
    &["base64", "image_url", "audio_url", "video_url", "input_audio", "image", "audio", "video", "url", "path"];

/// Returns the kind of media that a block shows. None for other blocks.
#[must_use]
pub fn kind(block: &Value) -> Option<MediaKind> {
    let found = chat::kind(block)?;
    TYPES.iter().find(|(name, _)| *name == found).map(|(_, kind)| *kind)
}

/// What a media block shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media<'a> {
    /// The key that holds the data or its place; None where the block holds neither.
    pub key: Option<&'a str>,
    /// The data, or where it is.
    pub source: MediaSource,
    /// Such as `image/png`: the block's `mime_type`, else what its data URL or `format` says.
    pub mime_type: Option<String>,
}

impl<'a> Media<'a> {
    /// Reads a media block.
    ///
    /// # Errors
    /// The key whose value should be a string.
    pub fn read(block: &'a Value) -> Result<Self, &'static str> {
        let given = KEYS.iter().find_map(|key| Some((*key, block.get(*key).filter(|value| !value.is_null())?)));
        let Some((key, value)) = given else {
            return Ok(Self { key: None, source: MediaSource::Elsewhere, mime_type: declared(block) });
        };
        let (source, mime_type) = match key {
            "base64" => (MediaSource::Base64(value.as_str().ok_or(key)?.to_owned()), None),
            _ => place(value).ok_or(key)?,
        };
        Ok(Self { key: Some(key), source, mime_type: declared(block).or(mime_type) })
    }
}

fn declared(block: &Value) -> Option<String> {
    block.get("mime_type")?.as_str().map(ToOwned::to_owned)
}

/// Reads a URL, a path, `{"url": …}` or `{"data": …, "format": …}`.
fn place(value: &Value) -> Option<(MediaSource, Option<String>)> {
    let object = value.as_object();
    let inner = |key: &str| object.and_then(|object| object.get(key)?.as_str());
    if let Some(data) = inner("data") {
        let mime_type = inner("format").map(|format| format!("audio/{format}"));
        return Some((MediaSource::Base64(data.to_owned()), mime_type));
    }
    let text = value.as_str().or_else(|| inner("url"))?;
    Some(match data_url(text) {
        Some((mime_type, data)) => (MediaSource::Base64(data.to_owned()), mime_type.map(ToOwned::to_owned)),
        None => (MediaSource::Location(text.to_owned()), None),
    })
}

/// Returns the media type and the base64 text of a data URL (RFC 2397). None for other text, and for data that is not base64.
#[must_use]
pub fn data_url(text: &str) -> Option<(Option<&str>, &str)> {
    let scheme = text.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:"))?;
    let (head, data) = text[scheme.len()..].split_once(',')?;
    let (head, encoding) = head.rsplit_once(';')?;
    let mime_type = head.split(';').next().filter(|mime_type| !mime_type.is_empty());
    encoding.trim().eq_ignore_ascii_case("base64").then_some((mime_type, data))
}

/// Returns the keys of a block beyond those that say what it shows, those of an object around its data included.
#[must_use]
pub fn other_keys(block: &Value, media: &Media<'_>) -> Object {
    let consumed = |key: &str| key == "type" || KEYS.contains(&key);
    let outer = block.as_object().into_iter().flatten().filter(|(key, _)| !consumed(key));
    let around = media.key.and_then(|key| block.get(key)?.as_object()).into_iter().flatten();
    let inner = around.filter(|(key, _)| !matches!(key.as_str(), "url" | "data" | "format"));
    outer.chain(inner).map(|(key, value)| (key.clone(), value.clone())).collect()
}
