//! Messages in the structure of Hugging Face's chat messages.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};
use tandem_common::field::Path;
use tandem_template::LocalTime;
use tandem_template::media::{self, Media, MediaKind, Source};

use super::source::ImageUrl;
use crate::error::{FetchError, RequestError};

/// The field of messages in a request.
pub(super) const FIELD: &str = "hf_messages_json";

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Messages, and the other inputs of the model's chat template.
#[derive(Debug, Clone, PartialEq)]
pub struct HfMessages {
    /// The messages. Blocks with images contain their data.
    pub messages: Vec<Value>,
    /// A list of tools.
    pub tools: Option<Value>,
    /// A list of documents.
    pub documents: Option<Value>,
    /// Arguments for the template.
    pub template_args: Map<String, Value>,
    /// True if the prompt ends with the start of the assistant's answer.
    pub add_generation_prompt: bool,
    /// True if the prompt ends within the final message.
    pub continue_final_message: bool,
    /// The time that the template sees.
    pub now: LocalTime,
    /// True if text that spells a control token or an image's placeholder stays text.
    pub literal_control_tokens: bool,
}

/// An encoded image of a message.
#[derive(Debug)]
pub(super) struct Encoded {
    /// The path of its data in the request.
    pub(super) field: Path,
    /// The file.
    pub(super) bytes: Vec<u8>,
}

impl HfMessages {
    /// Creates messages without tools, documents and arguments.
    #[must_use]
    pub fn new(messages: Vec<Value>, now: LocalTime) -> Self {
        Self {
            messages,
            tools: None,
            documents: None,
            template_args: Map::new(),
            add_generation_prompt: true,
            continue_final_message: false,
            now,
            literal_control_tokens: false,
        }
    }

    /// Returns the same options without messages and other content.
    pub(super) fn without_content(&self) -> Self {
        let Self { add_generation_prompt, continue_final_message, now, literal_control_tokens, .. } = *self;
        Self { add_generation_prompt, continue_final_message, literal_control_tokens, ..Self::new(Vec::new(), now) }
    }

    /// Returns about the bytes of the texts and of the images' data.
    #[must_use]
    pub fn size(&self) -> usize {
        self.messages.iter().map(size_of).sum()
    }

    /// Returns the images at http and https URLs, with their paths.
    pub(crate) fn urls(&mut self) -> Vec<ImageUrl<'_>> {
        let blocks = self.messages.iter_mut().enumerate().flat_map(|(i, message)| {
            let blocks = message.get_mut("content").and_then(Value::as_array_mut);
            blocks.into_iter().flatten().enumerate().map(move |(j, block)| (i, j, block))
        });
        let urls = blocks.filter_map(|(i, j, block)| {
            let image = media::kind(block).filter(|kind| *kind == MediaKind::Image)?;
            let key = Media::read(block, image).ok()?.key?;
            let text = media::text_mut(block, image).filter(|text| is_url(text))?;
            Some(ImageUrl::of_block(block_path(i, j).key(shown(key)), text))
        });
        urls.collect()
    }

    /// Takes the data of the images out of the messages, in order. Removes keys that are null, as
    /// transformers does.
    ///
    /// # Errors
    /// There are too many images, or a block has no readable data.
    pub(super) fn take_images(mut self, limit: usize) -> Result<(Self, Vec<Encoded>), RequestError> {
        let mut images = Vec::new();
        for (i, message) in self.messages.iter_mut().enumerate() {
            let Value::Object(message) = message else {
                return Err(RequestError::invalid(Path::item(FIELD, i), "must be an object"));
            };
            message.retain(|_, value| !value.is_null());
            let Some(Value::Array(blocks)) = message.get_mut("content") else { continue };
            for (j, block) in blocks.iter_mut().enumerate() {
                take_image(block, block_path(i, j), &mut images)?;
                if images.len() > limit {
                    return Err(RequestError::TooManyImages { field: block_path(i, j), limit });
                }
            }
        }
        Ok((self, images))
    }
}

fn size_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size_of).sum(),
        Value::Object(fields) => fields.values().map(size_of).sum(),
        _ => 8,
    }
}

/// Returns the path of a block of a message.
fn block_path(message: usize, block: usize) -> Path {
    Path::item(FIELD, message).key("content").index(block)
}

/// Takes the data of a block, if it is an image.
fn take_image(block: &mut Value, path: Path, images: &mut Vec<Encoded>) -> Result<(), RequestError> {
    let kind = match media::kind(block) {
        Some(MediaKind::Image) => MediaKind::Image,
        Some(other) => {
            return Err(RequestError::invalid(path, format!("must be text or an image, is {}", other.name())));
        }
        None if is_untyped_image(block) => {
            return Err(RequestError::invalid(path.key("type"), "must be image: the block has an image's data"));
        }
        None => return Ok(()),
    };
    let media = Media::read(block, kind);
    let media = media.map_err(|key| RequestError::invalid(path.clone().key(shown(key)), "must be a string"))?;
    let Some(key) = media.key else {
        return Err(RequestError::invalid(path.key("base64"), "must be set: the image, base64-encoded"));
    };
    let field = path.key(shown(key));
    images.push(Encoded { bytes: decode(media.source, key, &field)?, field });
    // The template sees an image without its data.
    if is_openai(key) || block["type"] != kind.name() {
        *block = serde_json::json!({"type": kind.name(), shown(key): ""});
    } else {
        block[key] = Value::String(String::new());
    }
    Ok(())
}

/// Returns true if a block that is neither text nor media has an image's data. The template would
/// ignore the image.
fn is_untyped_image(block: &Value) -> bool {
    let is_text = block.get("type").and_then(Value::as_str) == Some("text");
    !is_text && !matches!(Media::read(block, MediaKind::Image), Ok(Media { key: None, .. }))
}

/// Returns true for the keys of OpenAI's blocks, whose data is a URL.
fn is_openai(key: &str) -> bool {
    matches!(key, "image_url" | "input_image")
}

/// Returns the name of a block's key in paths of fields.
fn shown(key: &'static str) -> &'static str {
    if is_openai(key) { "url" } else { key }
}

fn is_url(text: &str) -> bool {
    let starts_with = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    starts_with("http://") || starts_with("https://")
}

/// Decodes base64. Text under the key `image` that is no URL is base64, as in transformers.
fn decode(source: Source<'_>, key: &str, field: &Path) -> Result<Vec<u8>, RequestError> {
    match source {
        Source::Base64(data) => decode_base64(data, || field.clone()),
        Source::Url(url) | Source::Path(url) if is_url(url) => {
            Err(RequestError::Fetch { field: field.clone(), source: FetchError::NoHosts })
        }
        Source::Url(data) if key == "image" && !data.starts_with("data:") => decode_base64(data, || field.clone()),
        _ => Err(RequestError::invalid(field.clone(), "must be base64 data, a data URL, or a URL of http or https")),
    }
}

/// Decodes base64, with or without padding, in one line or in several.
///
/// # Errors
/// The text is not base64.
pub fn decode_base64(text: &str, field: impl FnOnce() -> Path) -> Result<Vec<u8>, RequestError> {
    let decoded = BASE64.decode(text).or_else(|error| match text.contains(|char: char| char.is_ascii_whitespace()) {
        true => BASE64.decode(text.split_ascii_whitespace().collect::<String>()),
        false => Err(error),
    });
    decoded.map_err(|error| RequestError::invalid(field(), format!("must be base64: {error}")))
}
