//! A conversation as turns, each with its calls and the results of these calls, from whichever
//! message.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;
use tandem_template::python::is_true;
use tandem_template::taint;

use super::attachments::Attachments;
use crate::adapter::Attachment;
use crate::conversation::media;
use crate::conversation::{self, Content, Conversation, Invalid, Object, block_text, unknown_block};
use crate::error::Error;
use crate::walk::At;
use crate::warning::{Warning, WarningCode};

/// The tool name of a result that no call or field names.
const UNKNOWN: &str = "unknown";

/// The exact error of the official template.
const ARGUMENTS_NOT_AN_OBJECT: &str = "chat_template: tool_calls[].function.arguments must be a JSON object (mapping), not a string. \
                                       Deserialize arguments before passing to the template.";

/// Maximum length of a tool name in bytes. A name is written once per result, so that a small
/// request could otherwise make a huge prompt.
const MAX_NAME_BYTES: usize = 256;

/// A whole conversation.
#[derive(Debug)]
pub(super) struct Dialogue<'a> {
    /// The leading system or developer message.
    pub system: Option<System<'a>>,
    /// All other messages, except results of calls.
    pub turns: Vec<Turn<'a>>,
    pub warnings: Vec<Warning>,
}

/// The content of the system turn.
#[derive(Debug)]
pub(super) struct System<'a> {
    pub parts: Vec<Part<'a>>,
    /// The text after every part. The official template writes a space after each block.
    pub separator: &'static str,
}

/// One message, with the results of its calls.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    /// The role in the message: "assistant", not "model".
    pub role: &'a str,
    pub thinking: Option<&'a str>,
    /// From the message's `tool_calls`.
    pub calls: Vec<Call<'a>>,
    /// From the message's own `tool_responses`.
    pub responses: Vec<Response<'a>>,
    /// From the messages after it.
    pub results: Vec<Response<'a>>,
    pub parts: Vec<Part<'a>>,
}

/// A part of a message.
#[derive(Debug)]
pub(super) enum Part<'a> {
    Text(&'a str),
    Media(Attachment),
    Call(Call<'a>),
    Result(Response<'a>),
}

/// A call of a tool.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// Null if the call has none.
    id: &'a Value,
    pub name: &'a str,
    pub arguments: Option<&'a Object>,
}

/// The result of a call.
#[derive(Debug)]
pub(super) struct Response<'a> {
    pub name: &'a str,
    pub body: Cow<'a, Value>,
    pub media: Vec<Attachment>,
}

/// A result without its name.
type Body<'a> = (Cow<'a, Value>, Vec<Attachment>);

impl<'a> Turn<'a> {
    /// Returns the role in the prompt.
    pub(super) fn shown_role(&self) -> &'a str {
        if self.role == "assistant" { "model" } else { self.role }
    }

    /// Returns true if the message calls tools, by `tool_calls` or by blocks.
    pub(super) fn has_calls(&self) -> bool {
        self.every_call().next().is_some()
    }

    /// Returns true if calls are among its blocks.
    pub(super) fn has_inline_calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call(_)))
    }

    fn every_call(&self) -> impl Iterator<Item = &Call<'a>> {
        let inline = self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        });
        self.calls.iter().chain(inline)
    }

    /// Returns true if results in later messages belong to it. The official template ignores them
    /// if the message has `tool_responses`.
    fn awaits_results(&self) -> bool {
        self.has_calls() && self.responses.is_empty()
    }
}

/// Reads a conversation. If it `needs_names`, the name of a call must not be empty.
///
/// # Errors
/// The first message with a wrong shape, by path.
pub(super) fn read(conversation: &Conversation, needs_names: bool) -> Result<Dialogue<'_>, Error> {
    let mut reader = Reader::new(conversation, needs_names)?;
    let mut messages = conversation.messages.iter().enumerate().peekable();
    let system = match messages.next_if(|(_, message)| is_system(message)) {
        Some((i, message)) => Some(reader.system(message, At::new("messages", i))?),
        None => None,
    };
    for (i, message) in messages {
        reader.message(message, At::new("messages", i))?;
    }
    Ok(Dialogue { system, turns: reader.turns, warnings: reader.warnings })
}

fn is_system(message: &Value) -> bool {
    matches!(message.get("role").and_then(Value::as_str), Some("system" | "developer"))
}

/// Reads messages in order, with the calls so far.
struct Reader<'a> {
    attachments: Attachments<'a>,
    /// The name of the only declared tool, if there is exactly one. A result without a call gets
    /// this name.
    only_tool: Option<&'a str>,
    needs_names: bool,
    /// The names of all calls so far, by id. The latest call with an id wins.
    called: HashMap<&'a str, &'a str>,
    /// The names of the last turn's calls, by id.
    called_last: HashMap<&'a Value, &'a str>,
    /// True if results in the next messages belong to the last turn.
    awaits_results: bool,
    turns: Vec<Turn<'a>>,
    warnings: Vec<Warning>,
}

impl<'a> Reader<'a> {
    fn new(conversation: &'a Conversation, needs_names: bool) -> Result<Self, Invalid> {
        let only_tool = match conversation.tools.as_ref().and_then(Value::as_array).map(Vec::as_slice) {
            Some([tool]) => tool_name(&tool.get("function").unwrap_or(tool)["name"]).ok(),
            _ => None,
        };
        Ok(Self {
            attachments: Attachments::declared_in(&conversation.template_args)?,
            only_tool,
            needs_names,
            called: HashMap::new(),
            called_last: HashMap::new(),
            awaits_results: false,
            turns: Vec::new(),
            warnings: Vec::new(),
        })
    }

    fn system(&mut self, message: &'a Value, path: At<'_>) -> Result<System<'a>, Error> {
        let separator = if message["content"].is_array() { " " } else { "" };
        Ok(System { parts: self.parts(message, path)?, separator })
    }

    fn message(&mut self, message: &'a Value, path: At<'_>) -> Result<(), Error> {
        let role = string(message, "role", path)?;
        match role {
            // The official template omits a result without a call before it.
            "tool" if !self.awaits_results => {
                self.warn(path, "the tool's result answers no call: not shown".to_owned());
                Ok(())
            }
            "tool" if !holds_results(message) => {
                let result = self.tool_message(message, path)?;
                self.answer([result]);
                Ok(())
            }
            _ => {
                let turn = self.turn(role, message, path)?;
                self.add(turn);
                Ok(())
            }
        }
    }

    fn warn(&mut self, path: At<'_>, text: String) {
        self.warnings.push(Warning::new(WarningCode::ToolResultUnpaired, path.path(), text));
    }

    /// Warns of a result with the id of no call.
    fn warn_unpaired(&mut self, path: At<'_>, name: &str) {
        self.warn(path, format!("the tool's result has the id of no call before it: shown as a result of {name:?}"));
    }

    /// Adds a turn. Results in it that belong to the turn before it are moved there; a turn of only
    /// such results is not added.
    fn add(&mut self, mut turn: Turn<'a>) {
        if self.awaits_results && turn.shown_role() != "model" {
            let is_result = |part: &mut Part<'_>| matches!(part, Part::Result(_));
            let results: Vec<_> = turn.parts.extract_if(.., is_result).collect();
            let is_answer_only = !results.is_empty() && turn.parts.is_empty() && turn.calls.is_empty();
            self.answer(results.into_iter().filter_map(|part| match part {
                Part::Result(result) => Some(result),
                _ => None,
            }));
            if is_answer_only {
                return;
            }
        }
        self.awaits_results = turn.awaits_results();
        self.called_last = turn.every_call().map(|call| (call.id, call.name)).collect();
        self.turns.push(turn);
    }

    fn answer(&mut self, results: impl IntoIterator<Item = Response<'a>>) {
        if let Some(turn) = self.turns.last_mut() {
            turn.results.extend(results);
        }
    }

    fn turn(&mut self, role: &'a str, message: &'a Value, path: At<'_>) -> Result<Turn<'a>, Error> {
        Ok(Turn {
            role,
            thinking: thinking(message, path)?,
            calls: self.calls(message, path)?,
            responses: responses(message, path)?,
            results: Vec::new(),
            parts: self.parts(message, path)?,
        })
    }

    fn calls(&mut self, message: &'a Value, path: At<'_>) -> Result<Vec<Call<'a>>, Invalid> {
        let calls = list(message, "tool_calls", path)?.iter().enumerate();
        calls.map(|(i, call)| self.tool_call(call, path.item("tool_calls", i))).collect()
    }

    fn tool_call(&mut self, call: &'a Value, path: At<'_>) -> Result<Call<'a>, Invalid> {
        let Some(function) = call.get("function").filter(|function| function.is_object()) else {
            return Err(path.invalid("function", "must be an object with a name and arguments"));
        };
        let name = self.call_name(&function["name"]).map_err(|problem| path.invalid("function.name", problem))?;
        let arguments = match &function["arguments"] {
            Value::Null if function.get("arguments").is_some() => None,
            Value::Object(arguments) => Some(arguments),
            _ => return Err(path.invalid("function.arguments", ARGUMENTS_NOT_AN_OBJECT)),
        };
        Ok(self.called(Call { id: &call["id"], name, arguments }))
    }

    fn call_name<'n>(&self, name: &'n Value) -> Result<&'n str, &'static str> {
        match tool_name(name) {
            Ok("") if self.needs_names => Err("must be a string that is not empty"),
            name => name,
        }
    }

    fn called(&mut self, call: Call<'a>) -> Call<'a> {
        if let Value::String(id) = call.id {
            self.called.insert(id, call.name);
        }
        call
    }

    fn parts(&mut self, message: &'a Value, path: At<'_>) -> Result<Vec<Part<'a>>, Error> {
        match conversation::content(message) {
            Content::Null => Ok(Vec::new()),
            Content::Text(text) => Ok(vec![Part::Text(text)]),
            Content::Blocks(blocks) => {
                let blocks = blocks.iter().enumerate();
                blocks.map(|(i, block)| self.part(block, i, path)).collect()
            }
            Content::Other(_) => Err(path.invalid("content", "must be text or a list of blocks").into()),
        }
    }

    fn part(&mut self, block: &'a Value, i: usize, message: At<'_>) -> Result<Part<'a>, Error> {
        let path = message.item("content", i);
        match conversation::kind(block) {
            Some("tool_use") => Ok(Part::Call(self.tool_use(block, path)?)),
            Some("tool_result") => Ok(Part::Result(self.tool_result(block, path)?)),
            _ => self.text_or_media(block, i, message),
        }
    }

    fn text_or_media(&self, block: &'a Value, i: usize, parent: At<'_>) -> Result<Part<'a>, Error> {
        let path = parent.item("content", i);
        match conversation::kind(block) {
            Some("text") => Ok(Part::Text(block_text(block, i).map_err(|e| e.within(parent.path()))?)),
            _ => match media::kind(block) {
                Some(kind) => Ok(Part::Media(self.attachments.shown_by(block, kind, path)?)),
                None => Err(unknown_block(block, path.path()).into()),
            },
        }
    }

    fn tool_use(&mut self, block: &'a Value, path: At<'_>) -> Result<Call<'a>, Invalid> {
        let arguments = match &block["input"] {
            Value::Object(input) => Some(input),
            Value::Null => None,
            _ => return Err(path.invalid("input", "must be a JSON object")),
        };
        let name = self.call_name(&block["name"]).map_err(|problem| path.invalid("name", problem))?;
        Ok(self.called(Call { id: &block["id"], name, arguments }))
    }

    /// Reads a result of the call with its id, else of the only tool.
    fn tool_result(&mut self, block: &'a Value, path: At<'_>) -> Result<Response<'a>, Error> {
        let called = block["tool_use_id"].as_str().and_then(|id| self.called.get(id).copied());
        let name = called.or(self.only_tool).unwrap_or(UNKNOWN);
        if called.is_none() {
            self.warn_unpaired(path, name);
        }
        let (body, media) = match conversation::content(block) {
            Content::Other(body) => (Cow::Borrowed(body), Vec::new()),
            _ => self.response_body(block, path)?,
        };
        Ok(Response { name, body: unfolded(body), media })
    }

    /// Reads a `tool` message: the result of the last turn's call with its id, else of the tool
    /// that it names.
    fn tool_message(&mut self, message: &'a Value, path: At<'_>) -> Result<Response<'a>, Error> {
        let (body, media) = self.response_body(message, path)?;
        let name = match self.called_last.get(&message["tool_call_id"]) {
            Some(name) => *name,
            None => {
                let name = name_or_unknown(message, path)?;
                // A result without an id may name its tool.
                if name == UNKNOWN || !message["tool_call_id"].is_null() {
                    self.warn_unpaired(path, name);
                }
                name
            }
        };
        Ok(Response { name, body, media })
    }

    fn response_body(&self, holder: &'a Value, path: At<'_>) -> Result<Body<'a>, Error> {
        let body = match conversation::content(holder) {
            Content::Blocks(blocks) => return self.response_blocks(blocks, path),
            Content::Null | Content::Text(_) => &holder["content"],
            Content::Other(Value::Object(_)) => {
                return Err(path.invalid("content", "must be text or a list of blocks").into());
            }
            Content::Other(scalar) => scalar,
        };
        Ok((Cow::Borrowed(body), Vec::new()))
    }

    fn response_blocks(&self, blocks: &'a [Value], path: At<'_>) -> Result<Body<'a>, Error> {
        let (mut text, mut media) = (String::new(), Vec::new());
        for (i, block) in blocks.iter().enumerate() {
            match self.text_or_media(block, i, path)? {
                Part::Text(part) => text.push_str(part),
                Part::Media(attachment) => media.push(attachment),
                Part::Call(_) | Part::Result(_) => {}
            }
        }
        Ok((Cow::Owned(text.into()), media))
    }
}

/// Returns true if a tool message is a list of `tool_result` blocks, rather than the result itself.
fn holds_results(message: &Value) -> bool {
    let blocks = conversation::blocks(message);
    !blocks.is_empty() && blocks.iter().all(|block| conversation::kind(block) == Some("tool_result"))
}

/// Returns text that is a JSON object as the object, because a typed result can contain an object
/// only as text.
fn unfolded(body: Cow<'_, Value>) -> Cow<'_, Value> {
    let object = match body.as_ref() {
        Value::String(text) => taint::parse_object(text),
        _ => None,
    };
    object.map_or(body, |object| Cow::Owned(Value::Object(object)))
}

fn thinking<'a>(message: &'a Value, path: At<'_>) -> Result<Option<&'a str>, Invalid> {
    // In transformers the first field that is set replaces the others, and the template prefers
    // `reasoning`.
    let first_set = ["reasoning_content", "thinking", "reasoning"].map(|key| &message[key]);
    let first_set = first_set.into_iter().find(|value| !value.is_null());
    let preferred = Some(&message["reasoning"]).filter(|value| is_true(value));
    match preferred.or(first_set).filter(|value| is_true(value)) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(path.invalid("reasoning_content", "must be a string")),
    }
}

fn responses<'a>(message: &'a Value, path: At<'_>) -> Result<Vec<Response<'a>>, Invalid> {
    let responses = list(message, "tool_responses", path)?.iter().enumerate();
    responses.map(|(i, response)| tool_response(response, path.item("tool_responses", i))).collect()
}

fn tool_response<'a>(response: &'a Value, path: At<'_>) -> Result<Response<'a>, Invalid> {
    let Some(body) = response.get("response") else {
        return Err(path.invalid("response", "must be the tool's answer"));
    };
    Ok(Response { name: name_or_unknown(response, path)?, body: Cow::Borrowed(body), media: Vec::new() })
}

fn name_or_unknown<'a>(holder: &'a Value, path: At<'_>) -> Result<&'a str, Invalid> {
    match &holder["name"] {
        Value::String(name) if !name.is_empty() => Ok(name),
        name if is_true(name) => Err(path.invalid("name", "must be a string")),
        _ => Ok(UNKNOWN),
    }
}

fn tool_name(name: &Value) -> Result<&str, &'static str> {
    match name.as_str() {
        Some(name) if taint::strip(name).len() <= MAX_NAME_BYTES => Ok(name),
        Some(_) => Err("must be at most 256 bytes long"),
        None => Err("must be a string"),
    }
}

fn string<'a>(object: &'a Value, key: &str, path: At<'_>) -> Result<&'a str, Invalid> {
    object[key].as_str().ok_or_else(|| path.invalid(key, "must be a string"))
}

/// Returns an optional list. A value that is false in Python is an empty list.
fn list<'a>(message: &'a Value, key: &str, path: At<'_>) -> Result<&'a [Value], Invalid> {
    match &message[key] {
        Value::Array(items) => Ok(items),
        value if is_true(value) => Err(path.invalid(key, "must be a list")),
        _ => Ok(&[]),
    }
}
