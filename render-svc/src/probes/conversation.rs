//! The marked texts, tools and documents of probes.
//!
//! A mark is one word of lower-case letters, so that a template that trims, splits or escapes a text
//! leaves it whole. No mark is part of another one.

use serde_json::{Value, json};

pub(super) const USER: &str = "qzuserone";
pub(super) const SECOND_USER: &str = "qzusertwo";
/// The user's message before the ones that are looked at.
pub(super) const FIRST_USER: &str = "qzbegin";
pub(super) const ASSISTANT: &str = "qzassistone";
pub(super) const SECOND_ASSISTANT: &str = "qzassisttwo";
pub(super) const SYSTEM: &str = "qzsystemone";
pub(super) const SECOND_SYSTEM: &str = "qzsystemtwo";
/// The system message of a template that needs one.
pub(super) const NEEDED_SYSTEM: &str = "qzneeded";
pub(super) const DEVELOPER: &str = "qzdeveloper";
pub(super) const FIRST_BLOCK: &str = "qzblockone";
pub(super) const SECOND_BLOCK: &str = "qzblocktwo";
pub(super) const TOOL: &str = "qztoolname";
pub(super) const PARAMETER: &str = "qzparameter";
pub(super) const ARGUMENT: &str = "qzargument";
pub(super) const RESULT: &str = "qzresultone";
pub(super) const SECOND_RESULT: &str = "qzresulttwo";
pub(super) const REASONING: &str = "qzreasoning";
pub(super) const DOCUMENT: &str = "qzdocument";

/// Returns the declaration of one tool.
pub(super) fn tools() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {PARAMETER: {"type": "string", "description": "A city"}},
        "required": [PARAMETER]
    });
    json!([{"type": "function", "function": {"name": TOOL, "description": "Does a thing", "parameters": parameters}}])
}

/// The keys under which known templates read the text of a document.
pub(crate) const DOCUMENT_KEYS: [&str; 5] = ["text", "content", "contents", "snippet", "body"];

/// Returns one document, with its text under each key.
pub(super) fn documents() -> Value {
    let mut document = json!({"title": "title", "doc_id": 1});
    DOCUMENT_KEYS.into_iter().for_each(|key| document[key] = DOCUMENT.into());
    json!([document])
}
