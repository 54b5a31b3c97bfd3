//! The form of a message's content: text, or a list of text blocks. Templates differ in the form
//! that they show, per role. Lists with other blocks and content without text stay as they are.

use serde_json::{Value, json};

use super::place::Place;
use super::traced::Traced;
use crate::conversation::{Content, Invalid, blocks, blocks_to_text, content, kind};

/// The form that a template needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ContentForm {
    /// The form of the request.
    #[default]
    AsIs,
    /// Text. The texts of a list are joined without a separator.
    Text,
    /// A list. A text becomes a list with one text block.
    List,
    /// A list with one text block, in which all texts are joined.
    OneBlock,
}

/// The form of each role's content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forms {
    /// For the role system.
    pub system: ContentForm,
    /// For the role developer.
    pub developer: ContentForm,
    /// For the role assistant.
    pub assistant: ContentForm,
    /// For the roles tool and function.
    pub tool: ContentForm,
    /// For all other roles.
    pub user: ContentForm,
}

impl Forms {
    /// Returns the same form for every role.
    #[must_use]
    pub fn all(form: ContentForm) -> Self {
        Self { system: form, developer: form, assistant: form, tool: form, user: form }
    }

    /// Returns the form for a role.
    #[must_use]
    pub fn of(&self, role: Option<&str>) -> ContentForm {
        match role {
            Some("system") => self.system,
            Some("developer") => self.developer,
            Some("assistant") => self.assistant,
            Some("tool" | "function") => self.tool,
            _ => self.user,
        }
    }
}

/// Converts the content of a message.
///
/// # Errors
/// A text block without text, by its path in the request.
pub fn apply(message: &mut Traced, form: ContentForm) -> Result<(), Invalid> {
    let joins = matches!(form, ContentForm::Text | ContentForm::OneBlock);
    let text = match content(&message.message) {
        _ if form == ContentForm::AsIs => return Ok(()),
        Content::Text(_) if form == ContentForm::Text => return Ok(()),
        Content::Text(text) => text.to_owned(),
        Content::Blocks(blocks) if joins && blocks.iter().all(|block| kind(block) == Some("text")) => {
            blocks_to_text(blocks).map_err(|invalid| message.invalid(invalid))?
        }
        _ => return Ok(()),
    };
    match form {
        ContentForm::Text => set_text(message, text),
        ContentForm::AsIs | ContentForm::List | ContentForm::OneBlock => set_block(message, &text),
    }
    Ok(())
}

/// Removes the place of a message's content. Also returns the place of its text: that of a list's first
/// text that is not empty, into which the others are joined. In a list that was merged from several
/// messages, each block has its own.
fn take_place(message: &mut Traced) -> (Place, Place) {
    let place = message.place.take("content");
    if blocks(&message.message).is_empty() {
        return (place.clone(), place.into_made());
    }
    let texts: Vec<_> =
        blocks(&message.message).iter().map(|block| block["text"].as_str().unwrap_or_default()).collect();
    let first = texts.iter().position(|text| !text.is_empty());
    let mut joined = Place::made_from(first.and_then(|first| place.item_path(first)).unwrap_or(place.path()).clone());
    let mut start = 0;
    for (text, item) in texts.iter().zip(place.clone().into_items(texts.len())).filter(|(text, _)| !text.is_empty()) {
        joined.add_merged(item, start);
        start += text.len();
    }
    (place, joined)
}

fn set_text(message: &mut Traced, text: String) {
    let (_, place) = take_place(message);
    message.place.set("content", place);
    message.message["content"] = Value::String(text);
}

fn set_block(message: &mut Traced, text: &str) {
    let (place, block) = take_place(message);
    message.place.set("content", place.with_items(vec![block]));
    message.message["content"] = json!([text_block(text)]);
}

/// Returns a text block.
#[must_use]
pub fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}
