//! The start of messages, by which tasks choose a replica.
//!
//! The tokens of messages with images are the replica's to compute. So the key of their prefix is made
//! of their text and of hashes of their images: the turns of a conversation share it, and so do
//! conversations with the same first message and image.

use serde_json::Value;

use crate::agreed_hash::AgreedHash;
use crate::conversation::media;

/// The most units of a prefix. As many tokens of a prompt count.
pub const MAX_UNITS: usize = 256;

/// The bytes of text of a unit, about those of a token.
const UNIT_BYTES: usize = 4;

/// Returns the units at the start of messages, in the place of token ids.
#[must_use]
pub fn of_messages(messages: &[Value]) -> Vec<u32> {
    let mut units = Vec::new();
    messages.iter().for_each(|message| push(message, &mut units));
    units
}

fn push(value: &Value, units: &mut Vec<u32>) {
    if units.len() >= MAX_UNITS {
        return;
    }
    match value {
        _ if media::kind(value).is_some() => push_hash(value, units),
        Value::String(text) => push_text(text, units),
        Value::Array(items) => items.iter().for_each(|item| push(item, units)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            push_text(key, units);
            push(value, units);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => push_hash(value, units),
    }
}

fn push_text(text: &str, units: &mut Vec<u32>) {
    let left = MAX_UNITS.saturating_sub(units.len());
    let unit = |bytes: &[u8]| bytes.iter().fold(0, |unit, byte| unit << 8 | u32::from(*byte));
    units.extend(text.as_bytes().chunks(UNIT_BYTES).take(left).map(unit));
}

fn push_hash(value: &Value, units: &mut Vec<u32>) {
    let mut hash = AgreedHash::EMPTY;
    let _ = serde_json::to_writer(&mut hash, value); // Neither JSON nor a hash fails.
    let hash = hash.finish();
    units.extend([(hash >> 32) as u32, hash as u32]);
}
