//! Images, which no DeepSeek encoder can show.

use super::blocks;
use crate::conversation::{Conversation, image_in};
use crate::warning::{Warning, WarningCode, ignored};

/// Returns true if the conversation contains an image that the encoders cannot write. For an image
/// without data in a tool result the official encoders write a text, so it does not stop them.
pub(super) fn stops_at_images(conversation: &Conversation) -> bool {
    let mut messages = conversation.messages.iter().filter(|message| !blocks::has_placeholder(message));
    messages.any(|message| image_in(message).is_some())
}

/// Warns of documents, which the encoders cannot show, and of media blocks without data, for which
/// they write a text.
pub(super) fn warnings(conversation: &Conversation) -> Vec<Warning> {
    let mut warnings = ignored("DeepSeek's prompt format", conversation, &[WarningCode::DocumentsIgnored]);
    let place = conversation.messages.iter().position(blocks::has_placeholder);
    warnings.extend(place.map(|i| Warning {
        code: WarningCode::ImagesIgnored,
        path: format!("messages[{i}].content"),
        text: "media blocks without data are written as the official encoder writes them, as text".to_owned(),
    }));
    warnings
}
