//! Messages in the structure of Hugging Face's chat messages.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};
use tandem_template::LocalTime;

use super::source::ImageUrl;
use crate::error::{Error, FetchError};

/// The field of messages in a request.
pub(super) const FIELD: &str = "hf_messages_json";

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The keys of an image's data. The first one in a block counts.
const SOURCES: [&str; 4] = ["base64", "url", "image", "path"];

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
    pub(super) field: String,
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
            let is_image = block.get("type").and_then(Value::as_str).is_some_and(is_image);
            let (key, Value::String(text)) = source(block).filter(|_| is_image)? else { return None };
            let field = format!("{FIELD}[{i}].content[{j}].{key}");
            is_url(text).then(|| ImageUrl::of_block(field, text))
        });
        urls.collect()
    }

    /// Takes the data of the images out of the messages, in order. Removes keys that are null, as
    /// transformers does.
    ///
    /// # Errors
    /// There are too many images, or a block has no readable data.
    pub(super) fn take_images(mut self, limit: usize) -> Result<(Self, Vec<Encoded>), Error> {
        let mut images = Vec::new();
        for (i, message) in self.messages.iter_mut().enumerate() {
            let Value::Object(message) = message else {
                return Err(Error::invalid(format!("{FIELD}[{i}]"), "must be an object"));
            };
            message.retain(|_, value| !value.is_null());
            let Some(Value::Array(blocks)) = message.get_mut("content") else { continue };
            for (j, block) in blocks.iter_mut().enumerate() {
                take_image(block, &format!("{FIELD}[{i}].content[{j}]"), &mut images)?;
                if images.len() > limit {
                    return Err(Error::TooManyImages { field: format!("{FIELD}[{i}].content[{j}]"), limit });
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

/// Returns the data of an image block, and its key. OpenAI's `image_url` has the key `url`.
fn source(block: &mut Value) -> Option<(&'static str, &mut Value)> {
    if block.get("type")?.as_str()? == "image_url" {
        let data = block.get_mut("image_url")?;
        let has_url = data.get("url").is_some();
        return Some(("url", if has_url { data.get_mut("url")? } else { data }));
    }
    let key = SOURCES.into_iter().find(|key| block.get(key).is_some())?;
    Some((key, block.get_mut(key)?))
}

/// Takes the data of a block, if it is an image.
fn take_image(block: &mut Value, path: &str, images: &mut Vec<Encoded>) -> Result<(), Error> {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
    let is_url = kind == "image_url";
    if !is_image(kind) {
        return match kind {
            "audio" | "video" => Err(Error::invalid(path, format!("must be text or an image, is {kind}"))),
            "text" => Ok(()),
            // The template would ignore the image.
            _ if SOURCES.iter().any(|key| block.get(key).is_some()) => {
                Err(Error::invalid(format!("{path}.type"), "must be image: the block has an image's data"))
            }
            _ => Ok(()),
        };
    }
    let Some((key, value)) = source(block) else {
        return Err(Error::invalid(format!("{path}.base64"), "must be set: the image, base64-encoded"));
    };
    let field = format!("{path}.{key}");
    let Value::String(text) = value.take() else {
        return Err(Error::invalid(field, "must be a string"));
    };
    images.push(Encoded { bytes: decode(&text, key, &field)?, field });
    // The template sees an image without its data.
    if is_url {
        *block = serde_json::json!({"type": "image", key: ""});
    } else {
        block[key] = Value::String(String::new());
    }
    Ok(())
}

fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

fn is_image(kind: &str) -> bool {
    kind == "image" || kind == "image_url"
}

/// Decodes base64, alone or in a data URL.
fn decode(text: &str, key: &str, field: &str) -> Result<Vec<u8>, Error> {
    let data = match text.strip_prefix("data:") {
        Some(url) => url.split_once(";base64,").map(|(_, data)| data),
        None => (key == "base64" || key == "image" && !is_url(text)).then_some(text),
    };
    let Some(data) = data else {
        return Err(match is_url(text) {
            true => Error::Fetch { field: field.to_owned(), source: FetchError::NoHosts },
            false => Error::invalid(field, "must be base64 data, a data URL, or a URL of http or https"),
        });
    };
    decode_base64(data, field)
}

/// Decodes base64, with or without padding, in one line or in several.
///
/// # Errors
/// The text is not base64.
pub fn decode_base64(text: &str, field: &str) -> Result<Vec<u8>, Error> {
    let decoded = BASE64.decode(text).or_else(|error| match text.contains(|char: char| char.is_ascii_whitespace()) {
        true => BASE64.decode(text.split_ascii_whitespace().collect::<String>()),
        false => Err(error),
    });
    decoded.map_err(|error| Error::invalid(field, format!("must be base64: {error}")))
}
