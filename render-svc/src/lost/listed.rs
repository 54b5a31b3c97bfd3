//! The parts of tools and documents.

use serde_json::Value;
use tandem_common::field::Step;

use super::part::{Group, List, Part, Place};
use super::schema::{self, PROPERTIES};
use super::steps;
use super::texts::{Texts, leaves, long_start};
use crate::conversation::function;
use crate::probes::{DOCUMENT_KEYS, Finding, TemplateFacts};
use crate::warning::WarningCode;

/// Returns a tool, and the parts of it that a template may leave out: names of parameters, unless the
/// template shows those of every tool, and the other texts and numbers at any depth.
pub(super) fn of_tool<'c>(item: usize, tool: &'c Value, declared: Finding, facts: &TemplateFacts) -> Vec<Part<'c>> {
    let (within, tool) = function(tool);
    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
    let part = |field, texts, finding, is_shared, steps| Part {
        place: Place::Item(List::Tools, item, field),
        code: WarningCode::ToolsIgnored,
        texts,
        finding,
        is_shared,
        is_repeat: false,
        group: Group::Tools,
        within,
        steps,
    };
    // Messages, too, contain names.
    let description = tool.get("description").and_then(long_start);
    let text = Texts::One(description.unwrap_or(name));
    if !text.has_words() {
        return Vec::new();
    }
    let mut parts = vec![part(None, text, declared, description.is_none(), Vec::new())];
    for (number, (steps, texts)) in schema::parts(tool).into_iter().enumerate() {
        let is_top = matches!(steps[..], [_, Step::Key(PROPERTIES)]);
        let are_names = steps.last() == Some(&Step::Key(PROPERTIES));
        if is_top && facts.tools.parameters == Finding::Shown {
            continue;
        }
        let finding = if is_top || !are_names { facts.tools.parameters } else { Finding::Unknown };
        parts.push(part(Some(number), texts, finding, are_names, steps));
    }
    parts
}

/// Returns a document and its other texts at any depth, without its number.
pub(super) fn of_document<'c>(item: usize, document: &'c Value, facts: &TemplateFacts) -> Vec<Part<'c>> {
    let part = |field, texts, finding, steps| Part {
        place: Place::Item(List::Documents, item, field),
        code: WarningCode::DocumentsIgnored,
        texts,
        finding,
        is_shared: false,
        is_repeat: false,
        group: Group::Documents,
        within: &[],
        steps,
    };
    let words = words(document);
    let whole = words.map(|text| part(None, Texts::One(text), facts.documents, Vec::new()));
    let mut fields = Vec::new();
    let given = document.as_object().into_iter().flatten();
    for (key, value) in given.filter(|(key, _)| !DOCUMENT_NUMBERS.contains(&key.as_str())) {
        steps::texts(value, &mut vec![Step::Key(key)], &mut fields);
    }
    let others = fields.into_iter().enumerate().filter_map(|(number, (steps, mut texts))| {
        texts.retain(|text| Some(*text) != words);
        (!texts.is_empty()).then(|| part(Some(number), Texts::Many(texts), Finding::Unknown, steps))
    });
    whole.into_iter().chain(others).filter(|part| part.texts.has_words()).collect()
}

/// The keys of a document's number. Few templates show it.
const DOCUMENT_NUMBERS: [&str; 3] = ["id", "doc_id", "document_id"];

/// Returns a document's own text. Others, such as its number, may be left out. If no usual key has
/// it, it is the longest one.
fn words(document: &Value) -> Option<&str> {
    let of_usual_keys = DOCUMENT_KEYS.into_iter().filter_map(|key| document.get(key)?.as_str());
    let longest = of_usual_keys.max_by_key(|text| text.len());
    longest.or_else(|| leaves(document).into_iter().max_by_key(|text| text.len()))
}
