//! Conversations with images, as messages for a Hugging Face vision-language processor.

use serde_json::{Value, json};
use tandem_common::field::Path;

use super::origins::Origins;
use crate::conversation::media::{self, Media, MediaKind, Source};
use crate::conversation::{CONTENT, Content, Conversation, Invalid, Object, block_text, content, kind, unknown_block};
use crate::walk::At;

/// Maps every message's blocks: text to `{"type":"text","text":…}`, an image to
/// `{"type":"image","base64":…}`, or with `url` or `path`; sound and video likewise, also inside
/// tool results. Plain text and all other keys stay as they are.
///
/// # Errors
/// A message without a role, content that is neither text nor blocks, a block of another kind or
/// without its text or data, by path.
pub fn hf_messages(conversation: &Conversation) -> Result<Vec<Value>, Invalid> {
    let mapped = conversation.messages.iter().enumerate();
    mapped.map(|(i, message)| hf_message(message).map_err(|e| e.within(Path::item("messages", i)))).collect()
}

/// The key of a media block's data.
const DATA: &str = "base64";

/// The key of a media block without data: the path of the request's block.
pub const FIELD: &str = "field";

/// Takes the base64 data out of media blocks, and leaves the number of each in its place.
pub fn take_data(messages: &mut [Value]) -> Vec<Value> {
    let mut taken = Vec::new();
    each_data(messages, |data| {
        let number = taken.len().to_string();
        taken.push(std::mem::replace(data, number.into()));
    });
    taken
}

/// Puts data that was taken out back, also into blocks that have moved.
pub fn put_data(messages: &mut [Value], mut taken: Vec<Value>) {
    each_data(messages, |data| {
        let number = data.as_str().and_then(|number| number.parse::<usize>().ok());
        if let Some(given) = number.and_then(|number| taken.get_mut(number)) {
            *data = given.take();
        }
    });
}

/// Replaces the base64 data of media blocks by the paths of these blocks in the request.
pub fn omit_data(messages: &mut [Value], origins: &Origins) {
    each_media(messages, &mut |at, block| {
        if block.shift_remove(DATA).is_some() {
            block.insert(FIELD.to_owned(), origins.path(&at.path()).to_string().into());
        }
    });
}

fn each_data(messages: &mut [Value], mut change: impl FnMut(&mut Value)) {
    each_media(messages, &mut |_, block| block.get_mut(DATA).into_iter().for_each(&mut change));
}

/// Changes each media block of mapped messages, also inside tool results.
pub(crate) fn each_media(messages: &mut [Value], change: &mut impl FnMut(&At<'_>, &mut Object)) {
    for (i, message) in messages.iter_mut().enumerate() {
        each_media_in(message, &At::new("messages", i), change);
    }
}

fn each_media_in(holder: &mut Value, at: &At<'_>, change: &mut impl FnMut(&At<'_>, &mut Object)) {
    let blocks = holder.get_mut(CONTENT).and_then(Value::as_array_mut);
    for (j, block) in blocks.into_iter().flatten().enumerate() {
        let at = at.item(CONTENT, j);
        each_media_in(block, &at, change);
        if media::kind(block).is_some() {
            block.as_object_mut().into_iter().for_each(|block| change(&at, block));
        }
    }
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
        (Some("tool_result"), _) => with_hf_blocks(block).map_err(|e| e.within(Path::item(CONTENT, i))),
        _ => Err(unknown_block(block, Path::item(CONTENT, i))),
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

fn unreadable(key: &'static str, i: usize) -> Invalid {
    let problem = match key {
        "base64" => "must be a string",
        _ => "must be a URL, a path or an object with \"url\"",
    };
    Invalid::new(Path::item(CONTENT, i).key(key), problem)
}

fn unreadable_data(block: &Value, kind: MediaKind, i: usize) -> Invalid {
    let block_path = Path::item(CONTENT, i);
    if block.get("attachment_id").is_some() {
        let problem = "only families with media support attachments: set base64, data or a location";
        Invalid::new(block_path.key("attachment_id"), problem)
    } else {
        Invalid::new(block_path.key(DATA), format!("must be a string: the {}, base64-encoded", kind.name()))
    }
}
