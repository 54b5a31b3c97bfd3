//! Media blocks of messages: images, audio and video. They are read from every common JSON shape into
//! one type.
//!
//! A block has its kind in `type`. Its data is under `base64`, under `url` or `path`, or under a
//! key with the name of its type, as in OpenAI's `{"type": "image_url", "image_url": {"url":
//! "data:image/png;base64,…"}}` and `{"type": "input_audio", "input_audio": {"data": "…", "format":
//! "wav"}}`.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// Kinds of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    /// One image.
    Image,
    /// Audio.
    Audio,
    /// Video.
    Video,
}

/// The types of blocks of each kind. A block's data may be under a key with the name of its type.
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

/// The types of media blocks.
pub const TYPE_NAMES: &[&str] = &type_names();

const fn type_names() -> [&'static str; TYPES.len()] {
    let mut names = [""; TYPES.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = TYPES[i].0;
        i += 1;
    }
    names
}

/// Fields of media blocks with data or its location.
pub const FIELDS: &[&str] =
    &["attachment_id", "base64", "data", "url", "path", "image", "image_url", "audio", "input_audio", "video"];

impl MediaKind {
    /// Returns the kind as the type of a block.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }

    /// Returns the keys with data or its location, in order of precedence.
    fn keys(self) -> impl Iterator<Item = &'static str> {
        let called_like_types = TYPES.iter().rev().filter(move |(_, kind)| *kind == self).map(|(name, _)| *name);
        ["base64"].into_iter().chain(called_like_types).chain(["url", "path"])
    }
}

/// Returns the kind of a media block; None for other blocks.
#[must_use]
pub fn kind(block: &Value) -> Option<MediaKind> {
    let found = block.get("type")?.as_str()?;
    TYPES.iter().find(|(name, _)| *name == found).map(|(_, kind)| *kind)
}

/// The data and media type of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media<'a> {
    /// The data or its location.
    pub source: Source<'a>,
    /// The media type, such as `image/png`. It is read from the block's `mime_type`, else from its
    /// data URL or `format`.
    pub mime_type: Option<Cow<'a, str>>,
    /// The key with the data or its location, of the block itself. None if the block has neither.
    pub key: Option<&'static str>,
    kind: MediaKind,
}

/// The location of a media block's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'a> {
    /// In the block, as base64 text.
    Base64(&'a str),
    /// At a URL.
    Url(&'a str),
    /// At a path.
    Path(&'a str),
    /// The block contains neither data nor location.
    Unknown,
}

impl<'a> Media<'a> {
    /// Reads a block of this kind.
    ///
    /// # Errors
    /// Fails with the key whose value is not a string.
    pub fn read(block: &'a Value, kind: MediaKind) -> Result<Self, &'static str> {
        let declared = block.get("mime_type").and_then(Value::as_str).map(Cow::Borrowed);
        let Some(key) = key(block, kind) else {
            return Ok(Self { source: Source::Unknown, mime_type: declared, kind, key: None });
        };
        let value = &block[key];
        let (source, mime_type) = match key {
            "base64" => base64(value.as_str().ok_or(key)?),
            _ => place(value, kind).ok_or(key)?,
        };
        let source = match source {
            Source::Url(place) if key == "path" => Source::Path(place),
            source => source,
        };
        Ok(Self { source, mime_type: declared.or(mime_type), kind, key: Some(key) })
    }

    /// Returns the block's keys other than its type, data and media type. Keys of the object that
    /// holds the data are included.
    #[must_use]
    pub fn other_keys(&self, block: &Value) -> Map<String, Value> {
        let consumed = |key: &str| matches!(key, "type" | "mime_type") || self.kind.keys().any(|known| known == key);
        let outer = block.as_object().into_iter().flatten().filter(|(key, _)| !consumed(key));
        let around = self.key.and_then(|key| block.get(key)?.as_object()).into_iter().flatten();
        let has_data = self.key.is_some_and(|key| block[key].get("data").is_some());
        let inner = around.filter(|(key, _)| !(consumed(key) || has_data && matches!(key.as_str(), "data" | "format")));
        outer.chain(inner).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// Reads base64 text, or a data URL in its place.
fn base64(text: &str) -> (Source<'_>, Option<Cow<'_, str>>) {
    let (mime_type, data) = data_url(text).unwrap_or((None, text));
    (Source::Base64(data), mime_type.map(Cow::Borrowed))
}

/// Returns the text with the data of a block of this kind, or with its location. None if it is not a
/// string.
#[must_use]
pub fn text_mut(block: &mut Value, kind: MediaKind) -> Option<&mut String> {
    let key = key(block, kind)?;
    let value = block.get_mut(key)?;
    let inner = if value.get("data").is_some_and(Value::is_string) { "data" } else { "url" };
    let text = if value.is_object() { value.get_mut(inner)? } else { value };
    match text {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Returns the first key of a block that has data or its location.
fn key(block: &Value, kind: MediaKind) -> Option<&'static str> {
    kind.keys().find(|key| block.get(key).is_some_and(|value| !value.is_null()))
}

/// Reads a URL, a path, `{"url": …}` or `{"data": …, "format": …}`.
fn place(value: &Value, kind: MediaKind) -> Option<(Source<'_>, Option<Cow<'_, str>>)> {
    let inner = |key: &str| value.as_object().and_then(|object| object.get(key)?.as_str());
    if let Some(data) = inner("data") {
        return Some((Source::Base64(data), inner("format").map(|format| mime_type(kind, format))));
    }
    let text = value.as_str().or_else(|| inner("url"))?;
    Some(match data_url(text) {
        Some((mime_type, data)) => (Source::Base64(data), mime_type.map(Cow::Borrowed)),
        None => (Source::Url(text), None),
    })
}

/// Returns the media type of a file format. OpenAI's name for `audio/mpeg` is `mp3`.
fn mime_type(kind: MediaKind, format: &str) -> Cow<'_, str> {
    let subtype = if format == "mp3" { "mpeg" } else { format };
    Cow::Owned(format!("{}/{subtype}", kind.name()))
}

/// Returns the media type and the base64 text of a data URL (RFC 2397). None for other text, and
/// for data that is not base64.
fn data_url(text: &str) -> Option<(Option<&str>, &str)> {
    let scheme = text.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:"))?;
    let (head, data) = text[scheme.len()..].split_once(',')?;
    let (head, encoding) = head.rsplit_once(';')?;
    let mime_type = head.split(';').next().filter(|mime_type| !mime_type.is_empty());
    encoding.trim().eq_ignore_ascii_case("base64").then_some((mime_type, data))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Image blocks, their source, and the text that contains it.
    fn blocks() -> Vec<(Value, Source<'static>, &'static str)> {
        let (url, data_url) = ("https://example.com/a.png", "data:image/png;base64,QQ==");
        let (at, data) = (Source::Url(url), Source::Base64("QQ=="));
        vec![
            (json!({"type": "image", "base64": "QQ=="}), data, "QQ=="),
            (json!({"type": "image", "base64": data_url}), data, data_url),
            (json!({"type": "image", "url": url}), at, url),
            (json!({"type": "image", "url": null, "path": "a.png"}), Source::Path("a.png"), "a.png"),
            (json!({"type": "image", "image": data_url, "url": url}), data, data_url),
            (json!({"type": "image", "image": {"data": "QQ==", "format": "png"}}), data, "QQ=="),
            (json!({"type": "image_url", "image_url": url}), at, url),
            (json!({"type": "image_url", "image_url": {"url": data_url}}), data, data_url),
            (json!({"type": "input_image", "image_url": url}), at, url),
        ]
    }

    #[test]
    fn every_shape_of_a_block_is_read() {
        for (mut block, source, text) in blocks() {
            assert_eq!(kind(&block), Some(MediaKind::Image), "{block}");
            assert_eq!(Media::read(&block, MediaKind::Image).expect("a source").source, source, "{block}");
            let shown = block.to_string();
            let found = text_mut(&mut block, MediaKind::Image).expect(&shown);
            assert_eq!(found, text, "{shown}");
            *found = "http://b".to_owned();
            let replaced = Media::read(&block, MediaKind::Image).expect("a source");
            assert!(block.to_string().contains("http://b") && replaced.source != Source::Unknown, "{block}");
        }
    }

    #[test]
    fn data_that_is_not_text_is_named_by_its_key() {
        for (mut block, key) in [
            (json!({"type": "image", "base64": 7}), "base64"),
            (json!({"type": "image", "url": []}), "url"),
            (json!({"type": "image_url", "image_url": {"uri": "a"}}), "image_url"),
        ] {
            assert_eq!(Media::read(&block, MediaKind::Image), Err(key), "{block}");
            assert!(text_mut(&mut block, MediaKind::Image).is_none(), "{block}");
        }
        let mut none = json!({"type": "image"});
        assert_eq!(Media::read(&none, MediaKind::Image).expect("no data").key, None);
        assert!(text_mut(&mut none, MediaKind::Image).is_none());
    }
}
