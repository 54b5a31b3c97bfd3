//! What the DeepSeek families share: how a model is recognised, how `template_args` and tools reach the encoder, and DSML, the
//! markup in which tool calls are written. Each family ports its official encoder, and equals it byte for byte.
//!
//! The official encoders read neither lists of text blocks nor typed tool calls and results. The adapters rewrite them to plain
//! messages: V3.2 in both dialects, V4 in the contract's dialect only, because the V4 encoder defines lists itself. Media blocks are
//! rejected, so that a prompt never contains base64 text.

mod arguments;
mod blocks;
mod v32;
mod v4;

use std::borrow::Cow;

use serde_json::Value;
use tandem_template::python::{self, Json, LoadsError};
use tandem_template::taint;

use super::{Input, Verdict, Warning, WarningCode, ignored};
use crate::chat::{Conversation, Invalid, Object, image_in};
use crate::models::Model;
use blocks::Item;

pub(super) use v4::DEEPSEEK_V4;
pub(super) use v32::DEEPSEEK_V32;

const BOS: &str = "<｜begin▁of▁sentence｜>";
const EOS: &str = "<｜end▁of▁sentence｜>";
const USER: &str = "<｜User｜>";
const ASSISTANT: &str = "<｜Assistant｜>";
const THINK: &str = "<think>";
const THINK_END: &str = "</think>";

const MARKUP: &[&str] = &[
    USER,
    ASSISTANT,
    THINK,
    THINK_END,
    "｜DSML｜",
    "<｜latest_reminder｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
];

/// What tells a family's models.
struct Identity {
    architectures: &'static [&'static str],
    repository: Option<&'static str>,
    /// Whether a template that writes DSML calls them `function_calls`; else `tool_calls`.
    has_function_calls: bool,
}

/// Whether the model is of the family: by its architecture, by its name where the family names a repository, or by the control
/// tokens of its template.
fn serves(model: &Model, identity: &Identity) -> Verdict {
    let &Identity { architectures, repository, has_function_calls } = identity;
    let templates = &model.artifacts.templates;
    let mut sources = templates.names().filter_map(|name| templates.get(name));
    let writes_dsml =
        |source: &str| source.contains("｜DSML｜") && source.contains("function_calls") == has_function_calls;
    match model.artifacts.architecture.as_deref() {
        Some(found) if architectures.contains(&found) => {
            Verdict::Serves(format!("the model's architecture is {found:?}"))
        }
        _ if repository.is_some_and(|repository| model.is_repository(repository)) => {
            Verdict::Serves("the model's name is the family's".to_owned())
        }
        _ if sources.any(writes_dsml) => {
            Verdict::Serves("the model's chat template writes the family's DSML".to_owned())
        }
        Some(found) => {
            Verdict::Passes(format!("the model's architecture is {found:?}, not {}", architectures.join(" or ")))
        }
        None => Verdict::Passes("the model's architecture is not known".to_owned()),
    }
}

/// Returns true if the conversation holds an image. An image without data in a tool's result does not count: the official
/// encoders write a text for it.
fn stops_at_images(conversation: &Conversation) -> bool {
    let mut messages = conversation.messages.iter().filter(|message| !blocks::has_placeholder(message));
    messages.any(|message| image_in(message).is_some())
}

/// What `template_args` ask of an encoder. Those it does not know are ignored.
struct Settings<'a> {
    thinking: bool,
    /// Messages before the conversation that are in the model's cache already: they are seen, not written.
    context: &'a [Value],
    /// Leave out the reasoning of earlier turns.
    drop_thinking: bool,
    bos: bool,
}

impl<'a> Settings<'a> {
    fn read(args: &'a Object, drop_thinking: bool) -> Result<Self, Invalid> {
        Ok(Self {
            thinking: thinking(args)?,
            context: context(args)?,
            drop_thinking: args.get("drop_thinking").map_or(drop_thinking, is_on),
            bos: args.get("add_default_bos_token").is_none_or(is_on),
        })
    }

    /// What comes before the first message.
    fn start(&self) -> String {
        if self.bos && self.context.is_empty() { BOS.to_owned() } else { String::new() }
    }
}

fn thinking(args: &Object) -> Result<bool, Invalid> {
    match args.get("thinking_mode") {
        None | Some(Value::Null) => Ok(args.get("thinking").or_else(|| args.get("enable_thinking")).is_some_and(is_on)),
        Some(mode) if reads(mode, "thinking") => Ok(true),
        Some(mode) if reads(mode, "chat") => Ok(false),
        Some(_) => Err(Invalid::new("template_args.thinking_mode", "must be \"thinking\" or \"chat\"")),
    }
}

/// Whether the value is this word, marked or not.
fn reads(value: &Value, word: &str) -> bool {
    value.as_str().is_some_and(|text| taint::strip(text) == word)
}

/// Switches may be words, as people type them.
fn is_on(switch: &Value) -> bool {
    match switch {
        Value::String(word) => {
            let word = taint::strip(word).trim().to_lowercase();
            ["1", "true", "on", "enabled", "thinking"].contains(&word.as_str())
        }
        other => python::is_true(other),
    }
}

fn context(args: &Object) -> Result<&[Value], Invalid> {
    match args.get("context") {
        Some(Value::Array(messages)) => Ok(messages),
        Some(other) if python::is_true(other) => {
            Err(Invalid::new("template_args.context", "must be a list of messages"))
        }
        _ => Ok(&[]),
    }
}

/// A message, and where in the request it is.
#[derive(Debug)]
struct Turn<'a> {
    path: &'a str,
    /// Whether it stands there as a block of a message.
    is_block: bool,
    role: &'a str,
    /// None for a message that is made here.
    fields: Option<&'a Object>,
    /// Declared in the message or, for the first system message, with the conversation; each with its path.
    tools: Vec<(String, &'a Value)>,
}

/// The conversation's messages. Its tools are declared by the first system message, or by one that is made for them.
fn turns<'a>(said: &'a [Item<'a>], conversation: &'a Conversation) -> Result<Vec<Turn<'a>>, Invalid> {
    let mut turns = messages(said)?;
    let tools = listed("tools", conversation.tools.as_ref())?;
    if tools.is_empty() {
        return Ok(turns);
    }
    match turns.iter_mut().find(|turn| turn.role == "system") {
        Some(system) => system.tools.extend(tools),
        None => turns.insert(0, Turn { path: "tools", is_block: false, role: "system", fields: None, tools }),
    }
    Ok(turns)
}

fn messages<'a>(items: &'a [Item<'a>]) -> Result<Vec<Turn<'a>>, Invalid> {
    items.iter().map(Turn::new).collect()
}

/// A list's items, each with its path. Nothing, in any of Python's forms, is an empty list.
fn listed<'a>(path: &str, list: Option<&'a Value>) -> Result<Vec<(String, &'a Value)>, Invalid> {
    match list {
        Some(Value::Array(items)) => {
            Ok(items.iter().enumerate().map(|(i, item)| (format!("{path}[{i}]"), item)).collect())
        }
        Some(other) if python::is_true(other) => Err(Invalid::new(path, "must be a list")),
        _ => Ok(Vec::new()),
    }
}

impl<'a> Turn<'a> {
    fn new(item: &'a Item<'a>) -> Result<Self, Invalid> {
        let path = item.path.as_str();
        let Some(fields) = item.message.as_object() else { return Err(Invalid::new(path, "must be an object")) };
        let tools = listed(&format!("{path}.tools"), fields.get("tools"))?;
        let role = fields.get("role").and_then(Value::as_str).unwrap_or_default();
        Ok(Self { path, is_block: item.is_block, role, fields: Some(fields), tools })
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields?.get(key)
    }

    /// The value, unless it is one of Python's forms of nothing.
    fn given(&self, key: &str) -> Option<&'a Value> {
        self.get(key).filter(|value| python::is_true(value))
    }

    /// The value as Python prints it; None is a word too.
    fn printed(&self, key: &str) -> String {
        self.get(key).map_or_else(|| "None".to_owned(), python::to_str)
    }

    /// The value as Python prints it; nothing is empty.
    fn printed_or_empty(&self, key: &str) -> String {
        self.given(key).map(python::to_str).unwrap_or_default()
    }

    fn invalid(&self, key: &str, problem: impl Into<String>) -> Invalid {
        Invalid::new(format!("{}.{key}", self.path), problem)
    }

    /// Blames the message for standing where it does.
    fn misplaced(&self, problem: impl Into<String>) -> Invalid {
        match self.is_block {
            true => Invalid::new(self.path, problem),
            false => self.invalid("role", problem),
        }
    }

    fn unknown_role(&self) -> Invalid {
        self.invalid("role", format!("this model knows no role {}", self.get("role").unwrap_or(&Value::Null)))
    }

    /// The functions that the message declares, one JSON schema a line; None when there are none.
    fn schemas(&self) -> Result<Option<String>, Invalid> {
        let missing = |path: &str| Invalid::new(format!("{path}.function"), "must be set");
        let schema =
            |(path, tool): &(String, &Value)| Ok(python::dumps(tool.get("function").ok_or_else(|| missing(path))?));
        let schemas: Vec<_> = self.tools.iter().map(schema).collect::<Result<_, Invalid>>()?;
        Ok((!schemas.is_empty()).then(|| schemas.join("\n")))
    }

    /// The section that asks for answers of a JSON schema.
    fn response_format(&self) -> Option<String> {
        const HEAD: &str = "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";
        self.given("response_format").map(|schema| format!("{HEAD}{}", python::dumps(schema)))
    }

    fn calls(&self) -> Result<Vec<Call<'a>>, Invalid> {
        let calls = listed(&format!("{}.tool_calls", self.path), self.get("tool_calls"))?;
        calls.into_iter().map(Call::new).collect()
    }

    fn call_count(&self) -> usize {
        self.get("tool_calls").and_then(Value::as_array).map_or(0, Vec::len)
    }
}

/// A call that the assistant made.
struct Call<'a> {
    path: String,
    name: String,
    arguments: &'a Value,
}

impl<'a> Call<'a> {
    fn new((path, call): (String, &'a Value)) -> Result<Self, Invalid> {
        let path = format!("{path}.function");
        let field = |key: &str| {
            let value = call.get("function").and_then(|function| function.get(key));
            value.ok_or_else(|| Invalid::new(format!("{path}.{key}"), "must be set"))
        };
        Ok(Self { name: python::to_str(field("name")?), arguments: field("arguments")?, path })
    }

    /// The arguments, where they are the JSON text of an object.
    fn parse(&self) -> Result<Vec<(String, Json)>, LoadsError> {
        self.arguments.as_str().map_or(Err(LoadsError::NotJson), python::loads_object)
    }

    fn unreadable(&self, error: LoadsError) -> Invalid {
        Invalid::new(format!("{}.arguments", self.path), arguments::problem(error))
    }

    fn dsml(&self, arguments: &[(String, Json)]) -> String {
        let parameters: Vec<_> = arguments.iter().map(|(name, value)| parameter(name, value)).collect();
        format!("<｜DSML｜invoke name=\"{}\">\n{}\n</｜DSML｜invoke>", self.name, parameters.join("\n"))
    }
}

/// Strings are written as they are, everything else as JSON.
fn parameter(name: &str, value: &Json) -> String {
    let (is_string, value) = match value {
        Json::Text(text) => (true, Cow::Borrowed(text)),
        other => (false, Cow::Owned(other.dumps())),
    };
    format!("<｜DSML｜parameter name=\"{name}\" string=\"{is_string}\">{value}</｜DSML｜parameter>")
}

/// The block that holds an answer's calls.
fn dsml_block(name: &str, calls: &[String]) -> String {
    match calls {
        [] => String::new(),
        calls => format!("\n\n<｜DSML｜{name}>\n{}\n</｜DSML｜{name}>", calls.join("\n")),
    }
}

/// Only an answer of the assistant can be continued.
fn check_continued(input: &Input<'_>, last: Option<&Turn<'_>>) -> Result<(), Invalid> {
    match last {
        Some(turn) if input.continue_final_message && turn.role != "assistant" => {
            Err(Invalid::new("continue_final_message", "needs a final message of the assistant"))
        }
        _ => Ok(()),
    }
}

/// Warns of documents, which the encoders have no place for, and of media blocks without data, for which they write a text.
fn warnings(conversation: &Conversation) -> Vec<Warning> {
    let mut warnings = ignored("DeepSeek's prompt format", conversation, &[WarningCode::DocumentsIgnored]);
    let place = conversation.messages.iter().position(blocks::has_placeholder);
    warnings.extend(place.map(|i| Warning {
        code: WarningCode::ImagesIgnored,
        path: format!("messages[{i}].content"),
        text: "media blocks without data are written as the official encoder writes them, as text".to_owned(),
    }));
    warnings
}
