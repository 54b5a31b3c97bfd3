//! Conversations with images, as the messages that a Hugging Face vision-language processor takes.

use serde_json::{Value, json};

use crate::chat::{Content, Conversation, Invalid, block_text, content, kind, unknown_block};

/// Maps every message's blocks: text to `{"type":"text","text":…}`, an image to `{"type":"image","base64":…}`, or with `url` or
/// `path`; sound and video likewise. Plain text and all other keys stay as they are.
///
/// # Errors
/// A block of another kind, or without its text or data, by path.
pub fn hf_messages(conversation: &Conversation) -> Result<Vec<Value>, Invalid> {
    let mapped = conversation.messages.iter().enumerate();
    mapped.map(|(i, message)| hf_message(message).map_err(|e| e.within(&format!("messages[{i}]")))).collect()
}

fn hf_message(message: &Value) -> Result<Value, Invalid> {
    let mut message = message.clone();
    if let Content::Blocks(blocks) = content(&message) {
        let blocks: Result<Vec<_>, _> = blocks.iter().enumerate().map(|(i, block)| hf_block(block, i)).collect();
        message["content"] = Value::Array(blocks?);
    }
    Ok(message)
}

fn hf_block(block: &Value, i: usize) -> Result<Value, Invalid> {
    match kind(block) {
        Some("text") => Ok(json!({"type": "text", "text": block_text(block, i)?})),
        Some(kind @ ("image" | "audio" | "video")) => media(block, kind, i),
        _ => Err(unknown_block(block, i)),
    }
}

fn media(block: &Value, kind: &str, i: usize) -> Result<Value, Invalid> {
    let places = ["base64", "url", "path"].into_iter();
    let found = places.filter_map(|key| Some((key, block.get(key)?.as_str()?))).next();
    match found {
        Some((key, data)) => Ok(json!({"type": kind, key: data})),
        None if block.get("attachment_id").is_some() => {
            let problem = "only families that show media know attachments: give base64, data or a location";
            Err(Invalid::new(format!("content[{i}].attachment_id"), problem))
        }
        None => {
            Err(Invalid::new(format!("content[{i}].base64"), format!("must be a string: the {kind}, base64-encoded")))
        }
    }
}
