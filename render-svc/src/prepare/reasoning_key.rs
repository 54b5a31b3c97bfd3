//! Reasoning under the key that a template reads.

use super::traced::Traced;
use crate::conversation::REASONING_CONTENT;

/// Gives reasoning another key, unless the message has a value for that key.
pub fn rename(message: &mut Traced, key: &'static str) {
    let Some(fields) = message.message.as_object_mut() else { return };
    if fields.get(key).is_some_and(|value| !value.is_null()) {
        return;
    }
    if let Some(reasoning) = fields.shift_remove(REASONING_CONTENT) {
        fields.insert(key.to_owned(), reasoning);
        let place = message.place.take(REASONING_CONTENT);
        message.place.set(key, place);
    }
}
