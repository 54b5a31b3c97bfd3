//! Warnings: unexpected facts about a rendering that do not fail the request.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use tandem_common::field::Path;
use tandem_template::python;

use crate::conversation::{Content, Conversation, Object, blocks, content, kind};
use crate::walk::{At, Part};

/// A warning about one field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The kind of the warning.
    pub code: WarningCode,
    /// The request field, such as `messages[1].content[0]`.
    pub path: Path,
    /// For people.
    pub text: String,
    /// The first bytes of the lost pieces of a text at the path that is cut. Empty if the warning is about
    /// all of it.
    pub cuts: Vec<usize>,
}

impl Warning {
    /// Returns true if a path is that of the warning's field, or within it.
    #[must_use]
    pub fn is_about(&self, path: &Path) -> bool {
        path.starts_with(&self.path)
    }

    /// Returns a warning about all of a field.
    #[must_use]
    pub fn new(code: WarningCode, path: impl Into<Path>, text: impl Into<String>) -> Self {
        Self { code, path: path.into(), text: text.into(), cuts: Vec::new() }
    }
}

/// Kinds of warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningCode {
    /// The adapter cannot show tools to the model.
    ToolsIgnored,
    /// The adapter reads no template_args.
    TemplateArgsIgnored,
    /// The adapter cannot show documents to the model.
    DocumentsIgnored,
    /// Consecutive messages became one.
    MessagesMerged,
    /// System messages became user messages.
    SystemRewritten,
    /// The model's template never reads this argument.
    TemplateArgUnknown,
    /// The arguments of a tool call are text where the template wants an object, or the reverse.
    ToolArgumentsType,
    /// The option has no effect for this adapter or output.
    OptionIgnored,
    /// Nothing identifies the model's format: the likeliest one was selected.
    FormatGuessed,
    /// The data of images is not in the prompt of a pinned adapter.
    ImagesIgnored,
    /// The argument is a parameter of apply_chat_template, not a variable of templates.
    TemplateArgReserved,
    /// The parameters of a tool have a shape that the adapter cannot show.
    ToolParametersIgnored,
    /// A tool result answers no call: it is omitted, or shown under another name.
    ToolResultUnpaired,
    /// A message has no content.
    NoContent,
    /// The conversation has images, and the model takes none.
    ImagesNotSupported,
    /// The content of a message is not in the prompt.
    MessageIgnored,
    /// A call of a tool is not in the prompt.
    ToolCallsIgnored,
    /// Reasoning of the assistant is not in the prompt.
    ReasoningIgnored,
    /// The family's encoder rendered, and the model's chat template renders differently.
    TemplateDiffers,
}

impl WarningCode {
    /// Returns the name that the contracts use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ToolsIgnored => "TOOLS_IGNORED",
            Self::TemplateArgsIgnored => "TEMPLATE_ARGS_IGNORED",
            Self::DocumentsIgnored => "DOCUMENTS_IGNORED",
            Self::MessagesMerged => "MESSAGES_MERGED",
            Self::SystemRewritten => "SYSTEM_REWRITTEN",
            Self::TemplateArgUnknown => "TEMPLATE_ARG_UNKNOWN",
            Self::ToolArgumentsType => "TOOL_ARGUMENTS_TYPE",
            Self::OptionIgnored => "OPTION_IGNORED",
            Self::FormatGuessed => "FORMAT_GUESSED",
            Self::ImagesIgnored => "IMAGES_IGNORED",
            Self::TemplateArgReserved => "TEMPLATE_ARG_RESERVED",
            Self::ToolParametersIgnored => "TOOL_PARAMETERS_IGNORED",
            Self::ToolResultUnpaired => "TOOL_RESULT_UNPAIRED",
            Self::NoContent => "NO_CONTENT",
            Self::ImagesNotSupported => "IMAGES_NOT_SUPPORTED",
            Self::MessageIgnored => "MESSAGE_IGNORED",
            Self::ToolCallsIgnored => "TOOL_CALLS_IGNORED",
            Self::ReasoningIgnored => "REASONING_IGNORED",
            Self::TemplateDiffers => "TEMPLATE_DIFFERS",
        }
    }
}

/// Fields whose messages often have no content.
const INSTEAD_OF_CONTENT: [&str; 3] = ["tool_calls", "reasoning_content", "task"];

/// The most warnings of one code that a rendering returns.
const MAX_WARNINGS_PER_CODE: usize = 16;

/// Keeps one warning of each code and path, and the first [`MAX_WARNINGS_PER_CODE`] of each code. The last kept one states the
/// number of omitted warnings.
#[must_use]
pub fn bounded(warnings: Vec<Warning>) -> Vec<Warning> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kept: Vec<Warning> = Vec::with_capacity(warnings.len().min(MAX_WARNINGS_PER_CODE));
    let mut seen = HashSet::new();
    for warning in warnings {
        let is_repeat = !seen.insert((warning.code.name(), warning.path.clone()));
        let is_of_parameters = warning.code == WarningCode::ToolsIgnored && is_ignored(&kept, &warning.path);
        if is_repeat || is_of_parameters {
            continue;
        }
        let count = counts.entry(warning.code.name()).or_default();
        *count += 1;
        if *count <= MAX_WARNINGS_PER_CODE {
            kept.push(warning);
        }
    }
    for (code, count) in counts.into_iter().filter(|(_, count)| *count > MAX_WARNINGS_PER_CODE) {
        if let Some(last) = kept.iter_mut().rfind(|warning| warning.code.name() == code) {
            last.text.push_str(&format!("; further warnings of this code: {}", count - MAX_WARNINGS_PER_CODE));
        }
    }
    kept
}

/// Returns true if a path is within parameters of a tool of which a warning says that they are ignored.
fn is_ignored(warnings: &[Warning], path: &Path) -> bool {
    let mut ignored = warnings.iter().filter(|warning| warning.code == WarningCode::ToolParametersIgnored);
    ignored.any(|ignored| ignored.is_about(path))
}

/// Returns a warning for each given part of the conversation that `name` cannot show to the model.
///
/// `codes` selects among tools, documents and template_args.
#[must_use]
pub fn ignored(name: &str, conversation: &Conversation, codes: &[WarningCode]) -> Vec<Warning> {
    let given = [
        (WarningCode::ToolsIgnored, "tools", conversation.has_tools()),
        (WarningCode::DocumentsIgnored, "documents", conversation.has_documents()),
        (WarningCode::TemplateArgsIgnored, "template_args", !conversation.template_args.is_empty()),
    ];
    let ignored = given.into_iter().filter(|(code, _, is_given)| *is_given && codes.contains(code));
    let text = |path: &str| format!("{name} cannot show {path} to the model: ignored");
    let warning = |(code, path, _): (WarningCode, &str, bool)| Warning::new(code, path, text(path));
    ignored.map(warning).collect()
}

/// Returns the path, the name and the value of each further key of a block of a message.
pub(crate) fn keys_of_block(at: &At<'_>, part: Part<'_>) -> impl Iterator<Item = (Path, String, Value)> {
    let block = if let Part::Block(block, _) = part { Some(block) } else { None };
    let keys = block.into_iter().flat_map(further_keys_of_block);
    keys.map(|(key, value)| (at.path().key(key.to_owned()), key.to_owned(), value.clone()))
}

/// Returns the keys of a text block other than its text, and the mark of a failed result of any block, that are not
/// empty.
pub(crate) fn further_keys_of_block(block: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let is_text = kind(block) == Some("text");
    let fields = block.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value));
    let is_further = move |key: &str| key == IS_ERROR || is_text && key != "type" && key != "text";
    fields.filter(move |(key, value)| is_further(key) && python::is_true(value))
}

/// Returns a warning for each further key of a block that a rewritten conversation lacks.
#[must_use]
pub fn lost_keys_of_blocks(given: &[(Path, String, Value)], rewritten: &[Value]) -> Vec<Warning> {
    let is_kept = |key: &str, value: &Value| {
        let mut blocks = rewritten.iter().flat_map(blocks);
        blocks.any(|block| block.get(key) == Some(value))
            || rewritten.iter().any(|message| message.get(key) == Some(value))
    };
    let lost = given.iter().filter(|(_, key, value)| !is_kept(key, value));
    let text = "not in the prompt: the block became a part of a text";
    lost.map(|(path, ..)| Warning::new(WarningCode::MessageIgnored, path.clone(), text)).collect()
}

/// The mark of a failed result, in its message or block.
const IS_ERROR: &str = "is_error";

/// Returns a warning for a message without content. The assistant's tool calls and reasoning are content
/// too.
pub(crate) fn without_content(at: &At<'_>, part: Part<'_>) -> Option<Warning> {
    let Part::Message(message) = part else { return None };
    let is_empty = content(message) == Content::Null && !INSTEAD_OF_CONTENT.iter().any(|key| is_given(message, key));
    let text = "the message has no content: set its text or its blocks";
    is_empty.then(|| Warning::new(WarningCode::NoContent, at.path().key("content"), text))
}

/// Returns a warning for each key of a user's message that consists of `tool_result` blocks. Messages
/// of the tool replace it, and its own keys, such as `name`, fit none of them.
pub(crate) fn keys_of_results(at: &At<'_>, part: Part<'_>) -> impl Iterator<Item = Warning> {
    let message = if let Part::Message(message) = part { Some(message) } else { None };
    let is_replaced = |message: &&Value| {
        let (role, blocks) = (message.get("role").and_then(Value::as_str), blocks(message));
        role == Some("user") && !blocks.is_empty() && blocks.iter().all(|block| kind(block) == Some("tool_result"))
    };
    let keys = message.filter(is_replaced).into_iter().flat_map(|message| {
        let keys = message.as_object().into_iter().flat_map(Object::keys);
        keys.filter(|key| !matches!(key.as_str(), "role" | "content") && is_given(message, key))
    });
    let text = |key: &str| {
        format!("{key} is not in the prompt: the message holds tool results only, which become tool messages")
    };
    keys.map(move |key| Warning::new(WarningCode::MessageIgnored, at.path().key(key.clone()), text(key)))
}

/// Returns true if a message has a value for a key.
fn is_given(message: &Value, key: &str) -> bool {
    message.get(key).is_some_and(|value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()))
}

/// Returns a warning that an option has no effect.
#[must_use]
pub fn option_ignored(option: &str, why: &str) -> Warning {
    Warning::new(WarningCode::OptionIgnored, option, format!("{why}: ignored"))
}
