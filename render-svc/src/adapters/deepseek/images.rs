//! Images. No DeepSeek encoder can write them.

use serde_json::Value;
use tandem_common::field::Path;

use super::blocks;
use crate::conversation::{Conversation, has_image};
use crate::warning::{Warning, WarningCode, ignored};

/// Returns true if the conversation contains an image that the encoders cannot write. The official
/// encoders write a text for an image without data in a tool result, so such an image is not
/// counted.
pub(super) fn stops_at_images(conversation: &Conversation) -> bool {
    let mut messages = conversation.messages.iter().filter(|message| !blocks::has_placeholder(message));
    messages.any(has_image)
}

/// Returns warnings for documents, which the encoders ignore, and for media blocks that they write as
/// text: those without data and, of a conversation that is not normalized, all.
pub(super) fn warnings(conversation: &Conversation) -> Vec<Warning> {
    let mut warnings = ignored("DeepSeek's prompt format", conversation, &[WarningCode::DocumentsIgnored]);
    let is_written = |message: &Value| blocks::has_placeholder(message) || has_image(message);
    let place = conversation.messages.iter().position(is_written);
    let text = "media blocks are written as the official encoder writes them, as text";
    let warning = |i| Warning::new(WarningCode::ImagesIgnored, Path::item("messages", i).key("content"), text);
    warnings.extend(place.map(warning));
    warnings
}
