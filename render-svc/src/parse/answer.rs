//! Reads an answer by the rules of its model, and loses none of its text.

use std::collections::HashSet;
use std::sync::Arc;

use tandem_model_files::digest::hex_sha256;

use super::engine::{CALLS, Dict, Event, Keys, MAX_CALLS, Note, ParseError, Parser, Value, is_space, strip};
use super::rules::Rules;
use super::track::Track;

/// The most warnings about one answer. Further ones are left out.
const MAX_WARNINGS: usize = 64;

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// More of the reasoning.
    Reasoning(String),
    /// More of the content.
    Content(String),
    /// The call with this index, whole.
    Call(usize, Call),
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The identifier: the model's, or one in the form that its template accepts.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// The reasoning, without white space around it.
    pub reasoning: String,
    /// The content, without white space around it.
    pub content: String,
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// Further fields that the rules have.
    pub extra: Dict,
    /// The parts that the rules could not read.
    pub warnings: Vec<ParseWarning>,
}

/// A part of an answer that the rules could not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseWarning {
    pub code: ParseWarningCode,
    /// The place in the answer, in bytes of UTF-8.
    pub place: usize,
    /// For people. It has no text of the answer, except for the name of a tool.
    pub text: String,
}

/// Kinds of warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseWarningCode {
    /// A part that is no valid call or field. Its text is content.
    Malformed,
    /// A part whose end is missing.
    Unclosed,
    /// A text outside of the parts that the rules have. It is content.
    Outside,
    /// A call of a tool that the request does not declare.
    UnknownTool,
}

/// The meaning of a field, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Content,
    Reasoning,
    Calls,
    /// Marks around other fields.
    Markup,
    Extra,
}

impl Role {
    fn of(field: &str) -> Self {
        match field {
            "content" => Self::Content,
            "reasoning_content" | "reasoning" | "thinking" => Self::Reasoning,
            CALLS => Self::Calls,
            "markup" => Self::Markup,
            _ => Self::Extra,
        }
    }
}

/// Reads one answer while it is written.
#[derive(Debug)]
pub struct AnswerReader {
    parser: Parser,
    rules: Arc<Rules>,
    /// The bytes of the prompt that belong to the answer.
    prompt_bytes: usize,
    prompt_sha256: String,
    tools: HashSet<String>,
    content: Track,
    reasoning: Track,
    calls: Vec<Call>,
    warnings: Vec<ParseWarning>,
    /// The text and the place of the region that closes next, and the parts that its value lacks.
    region: (String, usize, Vec<(usize, Note)>),
    /// The fields that closed.
    closed: HashSet<Arc<str>>,
    /// The end of the last text outside of all fields.
    outside_end: Option<usize>,
}

impl AnswerReader {
    /// Starts to read the answer to a prompt. The prompt decides whether the answer begins within reasoning, and makes
    /// the identifiers of calls its own. Tools have the form of `apply_chat_template`; their schemas decide the types
    /// of arguments that the model writes without types.
    ///
    /// # Errors
    /// The rules do not fit the prompt.
    pub fn new(rules: Arc<Rules>, prompt: &str, tools: &[Value]) -> Result<Self, ParseError> {
        let start = rules.start_of(prompt);
        let (parser, events) = Parser::after(Arc::clone(&rules.template), start, tools, true)?;
        let mut reader = Self {
            parser,
            prompt_bytes: start.len(),
            prompt_sha256: hex_sha256(prompt.as_bytes()),
            tools: tools.iter().filter_map(tool_name).collect(),
            content: Track::default(),
            reasoning: Track::default(),
            calls: Vec::new(),
            warnings: Vec::new(),
            region: (String::new(), 0, Vec::new()),
            closed: HashSet::new(),
            outside_end: None,
            rules,
        };
        for event in events {
            if let Event::Chunk { field, text, .. } = event {
                let has_text = !strip(&text).is_empty();
                reader.track(Role::of(&field)).began |= has_text;
            }
        }
        Ok(reader)
    }

    /// Reads more text.
    pub fn feed(&mut self, text: &str) -> Vec<Delta> {
        // A parser that keeps all text has no errors, unless it has ended.
        let events = self.parser.feed(text).unwrap_or_default();
        self.deltas(events)
    }

    /// Reads the rest of the answer.
    #[must_use]
    pub fn read(mut self, text: &str) -> Answer {
        self.feed(text);
        self.finish().1
    }

    /// Ends the answer.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Delta>, Answer) {
        let (message, events) = self.parser.finish().unwrap_or_default();
        let deltas = self.deltas(events);
        let is_extra = |(key, _): &(String, Value)| Role::of(key) == Role::Extra && key != "role";
        let extra = message.into_iter().filter(is_extra).collect();
        let Self { content, reasoning, calls, warnings, .. } = self;
        let (content, reasoning) = (content.into_text(), reasoning.into_text());
        (deltas, Answer { reasoning, content, calls, extra, warnings })
    }

    fn deltas(&mut self, events: Vec<Event>) -> Vec<Delta> {
        let mut deltas = Vec::new();
        for event in events {
            match event {
                Event::Open { field } => self.open(&field),
                Event::Chunk { field, text, .. } => {
                    let role = Role::of(&field);
                    if let Some(strips) = self.streamed(role, &field) {
                        self.push(role, &text, strips, &mut deltas);
                    }
                }
                Event::Note { place, note } => self.note(place, note, &mut deltas),
                Event::Close { field, value } => self.close(field, value, &mut deltas),
            }
        }
        deltas
    }

    /// Returns whether the chunks of a field's text are stripped, if they are text of the answer.
    fn streamed(&self, role: Role, field: &str) -> Option<bool> {
        let is_text = matches!(role, Role::Content | Role::Reasoning);
        self.rules.template.strips(field).filter(|_| is_text)
    }

    fn open(&mut self, field: &str) {
        let role = Role::of(field);
        if let Some(join) = self.rules.template.join(field).filter(|_| matches!(role, Role::Content | Role::Reasoning))
        {
            let join = join.to_owned();
            self.track(role).join(&join);
        }
    }

    fn track(&mut self, role: Role) -> &mut Track {
        if role == Role::Reasoning { &mut self.reasoning } else { &mut self.content }
    }

    fn push(&mut self, role: Role, text: &str, strips: bool, deltas: &mut Vec<Delta>) {
        let track = self.track(role);
        let certain = if strips { track.push(text) } else { track.push_whole(text) };
        let delta = if role == Role::Reasoning { Delta::Reasoning } else { Delta::Content };
        deltas.extend(certain.map(delta));
    }

    fn close(&mut self, field: Arc<str>, value: Value, deltas: &mut Vec<Delta>) {
        let (whole, place, unread) = std::mem::take(&mut self.region);
        let role = Role::of(&field);
        let is_again = !self.closed.insert(Arc::clone(&field));
        match role {
            Role::Calls => match calls(value) {
                Some(calls) if self.calls.len() + calls.len() > MAX_CALLS => {
                    self.lose(&whole, place, "a call after as many as an answer may have", deltas);
                }
                Some(calls) => {
                    calls.into_iter().for_each(|call| self.call(call, place, deltas));
                    unread.into_iter().for_each(|(place, note)| self.note(place, note, deltas));
                }
                None => self.lose(&whole, place, "a part that is no call", deltas),
            },
            Role::Extra if is_again && !self.rules.template.repeats(&field) => {
                self.lose(&whole, place, "a field that the answer has already", deltas);
            }
            Role::Extra | Role::Markup => {}
            Role::Content | Role::Reasoning if self.streamed(role, &field).is_some() => {}
            Role::Content | Role::Reasoning => match &value {
                Value::Text(text) => self.push(role, text, false, deltas),
                value => match value.to_json() {
                    Some(json) => self.push(role, &json, false, deltas),
                    None => self.lose(&whole, place, "a number that JSON lacks", deltas),
                },
            },
        }
    }

    fn call(&mut self, (id, name, arguments): (Option<String>, String, String), place: usize, deltas: &mut Vec<Delta>) {
        let index = self.calls.len();
        if !self.tools.is_empty() && !self.tools.contains(&name) {
            self.warn(ParseWarningCode::UnknownTool, place, format!("the request declares no tool {name:?}"));
        }
        let made = || self.rules.id_form.id(&self.prompt_sha256, index, &name, &arguments);
        let id = id.filter(|id| !id.is_empty()).unwrap_or_else(made);
        let call = Call { id, name, arguments };
        self.calls.push(call.clone());
        deltas.push(Delta::Call(index, call));
    }

    fn note(&mut self, place: usize, note: Note, deltas: &mut Vec<Delta>) {
        match note {
            Note::Region { text, unread } => self.region = (text, place, unread),
            Note::Failed { text, error } => self.lose(&text, place, &error.to_string(), deltas),
            Note::Unclosed { field } if Role::of(&field) == Role::Markup => {}
            Note::Unclosed { field } => {
                self.warn(ParseWarningCode::Unclosed, place, format!("the end of {field} is missing"));
            }
            Note::Outside { text } => {
                let is_blank = self.rules.without_ends(&text).is_empty();
                if is_blank && !strip(&text).is_empty() {
                    return;
                }
                if !is_blank && self.outside_end != Some(place) {
                    // White space before the first word may have come in an earlier piece.
                    let first = place + text.len() - text.trim_start_matches(is_space).len();
                    let text = "a text outside of the parts that the rules have; it is content".to_owned();
                    self.warn(ParseWarningCode::Outside, first, text);
                }
                if !is_blank || self.outside_end == Some(place) {
                    self.outside_end = Some(place + text.len());
                }
                self.push(Role::Content, &text, true, deltas);
            }
        }
    }

    /// Makes a region content, except for the part of it that the prompt has.
    fn lose(&mut self, whole: &str, place: usize, problem: &str, deltas: &mut Vec<Delta>) {
        let text = whole.get(self.prompt_bytes.saturating_sub(place)..).unwrap_or(whole);
        self.warn(ParseWarningCode::Malformed, place, format!("{problem}; the text is content"));
        self.push(Role::Content, text, true, deltas);
    }

    fn warn(&mut self, code: ParseWarningCode, place: usize, text: String) {
        if self.warnings.len() < MAX_WARNINGS {
            let place = place.saturating_sub(self.prompt_bytes);
            self.warnings.push(ParseWarning { code, place, text });
        }
    }
}

fn tool_name(tool: &Value) -> Option<String> {
    let tool = tool.as_dict()?;
    let function = tool.get("function").map_or(Some(tool), Value::as_dict)?;
    function.get("name").and_then(Value::as_text).map(str::to_owned)
}

/// The identifier, the name and the arguments of a call.
type Parts = (Option<String>, String, String);

/// Returns the calls of a field's value. None if a part of it is no call.
fn calls(value: Value) -> Option<Vec<Parts>> {
    match value {
        Value::List(items) => items.into_iter().map(call).collect(),
        value => Some(vec![call(value)?]),
    }
}

fn call(value: Value) -> Option<Parts> {
    let Value::Dict(mut entries) = value else { return None };
    let id = entries.shift_remove("id");
    let Some(Value::Dict(mut function)) = entries.shift_remove("function") else { return None };
    let Some(Value::Text(name)) = function.shift_remove("name").filter(|name| name.is_true()) else { return None };
    let mut take = |key| function.shift_remove(key);
    let arguments = take("arguments").or_else(|| take("parameters"));
    let own_id = take("id");
    let kind = take("type");
    // Further keys would be lost.
    if !function.is_empty() || kind.is_some_and(|kind| kind.as_text() != Some("function")) {
        return None;
    }
    let arguments = match arguments {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::Text(text)) => {
            Value::loads(&text, Keys::Distinct).ok().filter(|value| value.as_dict().is_some())?.to_json()?
        }
        Some(value @ Value::Dict(_)) => value.to_json()?,
        Some(_) => return None,
    };
    let id = match id.or(own_id) {
        Some(Value::Text(id) | Value::Int(id)) => Some(id),
        None | Some(Value::Null) => None,
        Some(_) => return None,
    };
    Some((id, name, arguments))
}
