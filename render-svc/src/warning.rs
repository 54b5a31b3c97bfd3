//! Warnings: unexpected facts about a rendering that do not fail the request.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use tandem_template::python;

use crate::conversation::{CONTENT, Content, Conversation, Object, REASONING_KEYS, blocks, content, kind};

/// A warning about one field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The kind of the warning.
    pub code: WarningCode,
    /// The request field, such as `messages[1].content[0]`.
    pub path: String,
    /// For people.
    pub text: String,
    /// The first bytes of the lost pieces of a text at the path that is cut. Empty if the warning is about
    /// all of it.
    pub cuts: Vec<usize>,
}

impl Warning {
    /// Returns true if a path is that of the warning's field, or within it.
    #[must_use]
    pub fn is_about(&self, path: &str) -> bool {
        path.strip_prefix(&self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }

    /// Returns a warning about all of a field.
    #[must_use]
    pub fn new(code: WarningCode, path: impl Into<String>, text: impl Into<String>) -> Self {
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
fn is_ignored(warnings: &[Warning], path: &str) -> bool {
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

/// The keys of messages that most templates read.
const USUAL_KEYS: [&str; 6] = ["role", "content", "name", "tool_calls", "tool_call_id", "function_call"];

/// Returns a warning, with this text, for each key of a message or block that only some templates read, such
/// as the mark of a failed result. An empty value has none.
#[must_use]
pub fn further_keys(conversation: &Conversation, text: &str) -> Vec<Warning> {
    let is_usual =
        |key: &str, value: &Value| USUAL_KEYS.contains(&key) || (REASONING_KEYS.contains(&key) && value.is_string());
    let mut paths = Vec::new();
    for (i, message) in conversation.messages.iter().enumerate() {
        let fields = message.as_object().into_iter().flatten();
        let further = fields.filter(|(key, value)| !is_usual(key, value) && python::is_true(value));
        paths.extend(further.map(|(key, _)| format!("messages[{i}].{key}")));
        for (j, block) in blocks(message).iter().enumerate() {
            let keys = further_keys_of_block(block).map(|(key, _)| key);
            paths.extend(keys.map(|key| format!("messages[{i}].{CONTENT}[{j}].{key}")));
        }
    }
    let warning = |path| Warning::new(WarningCode::MessageIgnored, path, text);
    paths.into_iter().map(warning).collect()
}

/// Returns the keys of a text block other than its text, and the mark of a failed result of any block, that are not
/// empty.
fn further_keys_of_block(block: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let is_text = kind(block) == Some("text");
    let fields = block.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value));
    let is_further = move |key: &str| key == IS_ERROR || is_text && key != "type" && key != "text";
    fields.filter(move |(key, value)| is_further(key) && python::is_true(value))
}

/// Returns a warning for each further key of a text block that a rewritten conversation lacks.
#[must_use]
pub fn lost_keys_of_blocks(given: &[(String, String, Value)], rewritten: &[Value]) -> Vec<Warning> {
    let is_kept = |key: &str, value: &Value| {
        let mut blocks = rewritten.iter().flat_map(blocks);
        blocks.any(|block| block.get(key) == Some(value))
            || rewritten.iter().any(|message| message.get(key) == Some(value))
    };
    let lost = given.iter().filter(|(_, key, value)| !is_kept(key, value));
    let text = "not in the prompt: the block became a part of a text";
    lost.map(|(path, ..)| Warning::new(WarningCode::MessageIgnored, path, text)).collect()
}

/// Returns the path, the key and the value of each further key of a block.
#[must_use]
pub fn keys_of_blocks(messages: &[Value]) -> Vec<(String, String, Value)> {
    let mut keys = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        for (j, block) in blocks(message).iter().enumerate() {
            let of_block = further_keys_of_block(block);
            keys.extend(
                of_block
                    .map(|(key, value)| (format!("messages[{i}].{CONTENT}[{j}].{key}"), key.to_owned(), value.clone())),
            );
        }
    }
    keys
}

/// The mark of a failed result, in its message or block.
pub const IS_ERROR: &str = "is_error";

/// Returns a warning for each message without content. The assistant's tool calls and reasoning are
/// content too.
pub fn without_content(messages: &[Value]) -> impl Iterator<Item = Warning> {
    let is_empty = move |message: &Value| {
        content(message) == Content::Null && !INSTEAD_OF_CONTENT.iter().any(|key| is_given(message, key))
    };
    let empty = messages.iter().enumerate().filter(move |(_, message)| is_empty(message));
    let text = "the message has no content: set its text or its blocks";
    empty.map(move |(i, _)| Warning::new(WarningCode::NoContent, format!("messages[{i}].content"), text))
}

/// Returns a warning for each key of a user's message that consists of `tool_result` blocks. Messages
/// of the tool replace it, and its own keys, such as `name`, fit none of them. `list` is the path of
/// the messages.
pub fn keys_of_results(list: &str, messages: &[Value]) -> Vec<Warning> {
    let is_replaced = |message: &Value| {
        let (role, blocks) = (message.get("role").and_then(Value::as_str), blocks(message));
        role == Some("user") && !blocks.is_empty() && blocks.iter().all(|block| kind(block) == Some("tool_result"))
    };
    let replaced = messages.iter().enumerate().filter(|(_, message)| is_replaced(message));
    let keys = replaced.flat_map(|(i, message)| {
        let keys = message.as_object().into_iter().flat_map(Object::keys);
        keys.filter(|key| !matches!(key.as_str(), "role" | "content") && is_given(message, key))
            .map(move |key| (i, key))
    });
    let text = |key: &str| {
        format!("{key} is not in the prompt: the message holds tool results only, which become tool messages")
    };
    keys.map(|(i, key)| Warning::new(WarningCode::MessageIgnored, format!("{list}[{i}].{key}"), text(key))).collect()
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
