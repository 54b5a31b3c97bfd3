//! Conversations with images, as messages for a Hugging Face vision-language processor.

use serde_json::{Value, json};

use super::origins::Origins;
use crate::conversation::media::{self, Media, MediaKind, Source};
use crate::conversation::{Content, Conversation, Invalid, Object, block_text, content, kind, unknown_block};

/// Maps every message's blocks: text to `{"type":"text","text":…}`, an image to
/// `{"type":"image","base64":…}`, or with `url` or `path`; sound and video likewise, also inside
/// tool results. Plain text and all other keys stay as they are.
///
/// # Errors
/// A message without a role, content that is neither text nor blocks, a block of another kind or
/// without its text or data, by path.
pub fn hf_messages(conversation: &Conversation) -> Result<Vec<Value>, Invalid> {
    let mapped = conversation.messages.iter().enumerate();
    mapped.map(|(i, message)| hf_message(message).map_err(|e| e.within(&format!("messages[{i}]")))).collect()
}

/// The key of a media block without data: the path of the request's block.
pub const FIELD: &str = "field";

/// Replaces the base64 data of media blocks by the paths of these blocks in the request.
pub fn omit_data(messages: &mut [Value], origins: &Origins) {
    for (i, message) in messages.iter_mut().enumerate() {
        omit_data_in(message, &format!("messages[{i}]"), origins);
    }
}

fn omit_data_in(holder: &mut Value, path: &str, origins: &Origins) {
    let blocks = holder.get_mut("content").and_then(Value::as_array_mut);
    for (j, block) in blocks.into_iter().flatten().enumerate() {
        let path = format!("{path}.content[{j}]");
        omit_data_in(block, &path, origins);
        let is_media = media::kind(block).is_some();
        if let Some(fields) = block.as_object_mut().filter(|_| is_media)
            && fields.shift_remove("base64").is_some()
        {
            fields.insert(FIELD.to_owned(), origins.path(&path).into());
        }
    }
}

/// Returns a copy of a mapped message without the base64 data of media blocks.
#[must_use]
pub fn without_data(message: &Value) -> Value {
    let is_short = |(key, _): &(&String, &Value)| key.as_str() != "base64";
    copy(message, &|block| {
        Some(block.iter().filter(is_short).map(|(key, value)| (key.clone(), value.clone())).collect())
    })
}

/// Returns a copy of a mapped message without media blocks.
#[must_use]
pub fn without_media(message: &Value) -> Value {
    copy(message, &|_| None)
}

/// Copies a message or a tool result. Each media block becomes another one, or none.
fn copy(holder: &Value, media_block: &impl Fn(&Object) -> Option<Object>) -> Value {
    let Some(fields) = holder.as_object() else { return holder.clone() };
    let block = |block: &Value| match block.as_object().filter(|_| media::kind(block).is_some()) {
        Some(fields) => media_block(fields).map(Value::Object),
        None => Some(copy(block, media_block)),
    };
    let field = |(key, value): (&String, &Value)| {
        let value = match value {
            Value::Array(blocks) if key == "content" => blocks.iter().filter_map(block).collect(),
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    Value::Object(fields.iter().map(field).collect())
}

fn hf_message(message: &Value) -> Result<Value, Invalid> {
    match message.get("role").and_then(Value::as_str) {
        None | Some("") => Err(Invalid::new("role", "must be a string that is not empty")),
        Some(_) => with_hf_blocks(message),
    }
}

/// Maps the blocks of a message or of a tool result.
fn with_hf_blocks(holder: &Value) -> Result<Value, Invalid> {
    let mut holder = holder.clone();
    match content(&holder) {
        Content::Null | Content::Text(_) => {}
        Content::Other(_) => return Err(Invalid::new("content", "must be text or a list of blocks")),
        Content::Blocks(blocks) => {
            let blocks: Result<Vec<_>, _> = blocks.iter().enumerate().map(|(i, block)| hf_block(block, i)).collect();
            holder["content"] = Value::Array(blocks?);
        }
    }
    Ok(holder)
}

fn hf_block(block: &Value, i: usize) -> Result<Value, Invalid> {
    match (kind(block), media::kind(block)) {
        (_, Some(kind)) => hf_media(block, kind, i),
        (Some("text"), _) => block_text(block, i).map(|_| block.clone()),
        (Some("tool_use"), _) => Ok(block.clone()),
        (Some("tool_result"), _) => with_hf_blocks(block).map_err(|e| e.within(&format!("content[{i}]"))),
        _ => Err(unknown_block(block, i)),
    }
}

fn hf_media(block: &Value, kind: MediaKind, i: usize) -> Result<Value, Invalid> {
    let media = Media::read(block, kind).map_err(|key| unreadable(key, i))?;
    let (key, text) = match media.source {
        Source::Base64(base64) => ("base64", base64),
        Source::Url(url) => ("url", url),
        Source::Path(path) => ("path", path),
        Source::Unknown => return Err(unreadable_data(block, kind, i)),
    };
    let mut mapped = Object::from_iter([("type".to_owned(), kind.name().into()), (key.to_owned(), json!(text))]);
    mapped.extend(media.other_keys(block));
    mapped.extend(media.mime_type.map(|mime_type| ("mime_type".to_owned(), mime_type.into())));
    Ok(Value::Object(mapped))
}

fn unreadable(key: &str, i: usize) -> Invalid {
    let problem = match key {
        "base64" => "must be a string",
        _ => "must be a URL, a path or an object with \"url\"",
    };
    Invalid::new(format!("content[{i}].{key}"), problem)
}

fn unreadable_data(block: &Value, kind: MediaKind, i: usize) -> Invalid {
    let kind = kind.name();
    if block.get("attachment_id").is_some() {
        let problem = "only families with media support attachments: set base64, data or a location";
        Invalid::new(format!("content[{i}].attachment_id"), problem)
    } else {
        Invalid::new(format!("content[{i}].base64"), format!("must be a string: the {kind}, base64-encoded"))
    }
}
