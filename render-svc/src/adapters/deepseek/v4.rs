//! `deepseek-v4`: DeepSeek-V4, whose tool results are part of the user's turn.

use std::collections::HashMap;

use serde_json::Value;
use tandem_common::field::Path;
use tandem_template::literal::KnownNames;
use tandem_template::python::{self, Json, LoadsError};

use super::blocks::{Item, Reading, lost_keys, read};
use super::calls::{Call, dsml_block};
use super::effort::{self, Revision};
use super::identity::{self, Identity};
use super::images::{self, stops_at_images};
use super::markup::{ASSISTANT, EOS, FIELDS, MARKUP, THINK, THINK_END, USER};
use super::settings::{self, Settings};
use super::template;
use super::turns::{CONTINUED_FIELDS, REASONING, Turn, check_continued, messages, reasoning_not_shown, turns};
use crate::adapter::{Adapter, AdapterOutput, EncoderArgument, Input, Kind, Match};
use crate::conversation::{self, Invalid};
use crate::error::Error;
use crate::model::Model;
use crate::probes::ArgumentsShape;

const IDENTITY: Identity = Identity {
    architectures: &["deepseek_v4", "deepseek4"],
    repository: None,
    has_function_calls: false,
    is_newest: true,
};

pub(in crate::adapters) const DEEPSEEK_V4: Adapter = Adapter {
    kind: Kind::Family,
    stops_at_images,
    markup: MARKUP,
    turn_ends: &[EOS],
    reasoning: Some((THINK, THINK_END)),
    arguments: ArgumentsShape::Either,
    known_names: KNOWN_NAMES,
    continued_fields: Some(CONTINUED_FIELDS),
    drops_unknown_args: true,
    switches: &settings::SWITCHES,
    template_args: &ARGUMENTS,
    differs: |model| template::difference(model, render),
    ..Adapter::new(
        "deepseek-v4",
        "DeepSeek-V4's own encoder: DSML, reasoning effort, results as parts of the user's turn",
        matches,
        render,
    )
};

const ARGUMENTS: [EncoderArgument; 7] = {
    let [mode, thinking, enabled, drop, bos, context] = settings::ARGUMENTS;
    [mode, thinking, enabled, drop, bos, context, effort::ARGUMENT]
};

const KNOWN_NAMES: KnownNames = KnownNames {
    roles: &[conversation::ROLES, &["latest_reminder", "direct_search_results"]],
    ..KnownNames::with(&[conversation::FIELDS, conversation::TOOL_FIELDS, FIELDS])
};

const REMINDER: &str = "<｜latest_reminder｜>";

/// Internal tasks of a message, and their control tokens.
const TASKS: &[(&str, &str)] = &[
    ("action", "<｜action｜>"),
    ("query", "<｜query｜>"),
    ("authority", "<｜authority｜>"),
    ("domain", "<｜domain｜>"),
    ("title", "<｜title｜>"),
    ("read_url", "<｜read_url｜>"),
];

fn matches(model: &Model) -> Match {
    let with_revision = |reason: String| {
        let (revision, why) = Revision::of(model);
        format!("{reason}; revision {} of the encoder: {why}", revision.name())
    };
    match identity::matches(model, &IDENTITY) {
        Match::Selected(reason) => Match::Selected(with_revision(reason)),
        Match::Guessed(reason) => Match::Guessed(with_revision(reason)),
        other => other,
    }
}

fn render(model: &Model, input: &Input<'_>) -> Result<AdapterOutput, Error> {
    let conversation = input.conversation;
    let settings = Settings::read(&conversation.template_args, true)?;
    let effort = effort::text(model, &conversation.template_args)?;
    let reading = if input.is_normalized { Reading::JoinedButResults } else { Reading::Verbatim };
    let said = read("messages", &conversation.messages, reading)?;
    let context = read("template_args.context", settings.context, reading)?;
    let (encoder, first) = Encoder::new(&settings, &context, &said, input)?;
    let mut prompt = settings.start();
    if first == 0 && settings.thinking {
        prompt.push_str(effort);
    }
    for i in first..encoder.messages.len() {
        encoder.write(i, &mut prompt)?;
    }
    let mut warnings = images::warnings(conversation);
    warnings.extend(settings::warnings(&conversation.template_args));
    warnings.extend(lost_keys("messages", &conversation.messages, reading));
    warnings.extend(lost_keys("template_args.context", settings.context, reading));
    if !settings.thinking && !effort.is_empty() {
        warnings.push(settings::ignored(effort::NAME, "has no effect, since thinking is off: ignored"));
    }
    Ok(AdapterOutput { prompt, attachments: Vec::new(), warnings })
}

/// A message. Tool results are part of user messages.
enum Message<'a> {
    User { parts: Vec<Part<'a>>, task: Option<Task<'a>> },
    Other(Turn<'a>),
}

/// A part of a user message, with the message of the request that it comes from.
enum Part<'a> {
    Text(Turn<'a>),
    Result(Turn<'a>),
}

/// The path and value of a task.
type Task<'a> = (Path, &'a Value);

impl<'a> Message<'a> {
    fn role(&self) -> &str {
        match self {
            Self::User { .. } => "user",
            Self::Other(turn) => turn.role,
        }
    }

    fn is_asking(&self) -> bool {
        matches!(self.role(), "user" | "developer")
    }

    fn task(&self) -> Option<Task<'a>> {
        match self {
            Self::User { task, .. } => task.clone(),
            Self::Other(turn) => task(turn),
        }
    }

    fn has_tools(&self) -> bool {
        matches!(self, Self::Other(turn) if !turn.tools.is_empty())
    }
}

fn task<'a>(turn: &Turn<'a>) -> Option<Task<'a>> {
    let task = turn.get("task").filter(|task| !task.is_null());
    task.map(|task| (turn.path().key("task"), task))
}

/// Merges messages. A tool result becomes part of the user message before it, or a separate user
/// message. A user message becomes part of the user message before it, unless that one has a task.
fn merge(turns: Vec<Turn<'_>>) -> Vec<Message<'_>> {
    let mut merged: Vec<Message<'_>> = Vec::with_capacity(turns.len());
    for turn in turns {
        match (turn.role, merged.last_mut()) {
            ("tool", Some(Message::User { parts, .. })) => parts.push(Part::Result(turn)),
            ("tool", _) => merged.push(Message::User { parts: vec![Part::Result(turn)], task: None }),
            ("user", Some(Message::User { parts, task: None })) => parts.push(Part::Text(turn)),
            ("user", _) => merged.push(Message::User { task: task(&turn), parts: vec![Part::Text(turn)] }),
            _ => merged.push(Message::Other(turn)),
        }
    }
    merged
}

/// Positions of results, by the id of their call.
type Order<'a> = HashMap<&'a str, usize>;

/// Sorts each message's results into the order of the calls before it.
fn sort_results<'a>(context: &[Message<'a>], messages: &mut [Message<'a>]) {
    let mut order = context.iter().rev().find_map(call_order).unwrap_or_default();
    for message in messages {
        order = call_order(message).unwrap_or(order);
        if let Message::User { parts, .. } = message
            && !order.is_empty()
        {
            *parts = sorted(std::mem::take(parts), &order);
        }
    }
}

/// Returns the order of a message's calls; None if it has none.
fn call_order<'a>(message: &Message<'a>) -> Option<Order<'a>> {
    let Message::Other(turn) = message else { return None };
    let calls = turn.get("tool_calls")?.as_array().filter(|calls| turn.role == "assistant" && !calls.is_empty())?;
    let ids = calls.iter().enumerate().filter_map(|(i, call)| Some((call_id(call)?, i)));
    Some(ids.collect())
}

fn call_id(call: &Value) -> Option<&str> {
    let ids = [call.get("id"), call.get("function").and_then(|function| function.get("id"))];
    ids.into_iter().flatten().filter_map(Value::as_str).find(|id| !id.is_empty())
}

/// Sorts the results among themselves. Texts keep their positions.
fn sorted<'a>(parts: Vec<Part<'a>>, order: &Order<'_>) -> Vec<Part<'a>> {
    let is_result: Vec<bool> = parts.iter().map(|part| matches!(part, Part::Result(_))).collect();
    let (mut results, texts): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| matches!(part, Part::Result(_)));
    results.sort_by_key(|result| result.place(order));
    let (mut results, mut texts) = (results.into_iter(), texts.into_iter());
    is_result.into_iter().filter_map(|is_result| if is_result { results.next() } else { texts.next() }).collect()
}

impl Part<'_> {
    fn place(&self, order: &Order<'_>) -> usize {
        let (Self::Text(turn) | Self::Result(turn)) = self;
        let id = turn.get("tool_call_id").and_then(Value::as_str);
        id.and_then(|id| order.get(id)).copied().unwrap_or_default()
    }

    fn write(&self) -> Result<String, Invalid> {
        match self {
            Self::Text(turn) => match turn.get("content") {
                None => Ok(String::new()),
                Some(Value::String(text)) => Ok(text.clone()),
                Some(_) => Err(turn.invalid("content", "must be text")),
            },
            Self::Result(turn) => Ok(format!("<tool_result>{}</tool_result>", result(turn)?)),
        }
    }
}

fn result(turn: &Turn<'_>) -> Result<String, Invalid> {
    match turn.get("content") {
        None => Ok(String::new()),
        Some(Value::Array(blocks)) => {
            let invalid = |i, problem| Invalid::new(Path::item("content", i), problem).within(turn.path());
            let text = |(i, block)| block_text(block).map_err(|problem| invalid(i, problem));
            let texts = blocks.iter().enumerate().map(text);
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n\n"))
        }
        Some(other) => Ok(python::to_str(other)),
    }
}

/// Returns the text of a block. For other blocks the text states that they are unsupported.
fn block_text(block: &Value) -> Result<String, &'static str> {
    let block = block.as_object().ok_or("must be an object with a \"type\"")?;
    match block.get("type") {
        Some(kind) if kind == "text" => match block.get("text") {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err("must have a text"),
        },
        kind => Ok(format!("[Unsupported {}]", python::to_str(kind.unwrap_or(&Value::Null)))),
    }
}

struct Encoder<'a> {
    /// The context, then the conversation.
    messages: Vec<Message<'a>>,
    /// The last message of the user or the developer.
    last_user: Option<usize>,
    thinking: bool,
    drop_thinking: bool,
    add_generation_prompt: bool,
    /// The field of the last message within which the prompt ends.
    continued: Option<&'a str>,
    /// Arguments of calls may be objects.
    takes_objects: bool,
}

impl<'a> Encoder<'a> {
    /// Returns an encoder and the index of the first message to write.
    fn new(
        settings: &Settings<'a>,
        context: &'a [Item<'a>],
        said: &'a [Item<'a>],
        input: &Input<'a>,
    ) -> Result<(Self, usize), Invalid> {
        let mut all = merge(messages(context)?);
        let turns = turns(said, input.conversation)?;
        check_continued(input, turns.last())?;
        let mut said = merge(turns);
        sort_results(&all, &mut said);
        let drop_thinking = settings.drop_thinking && !all.iter().chain(&said).any(Message::has_tools);
        let drops_messages = settings.thinking && drop_thinking;
        let first = if drops_messages { kept(&all).into_iter().filter(|kept| *kept).count() } else { all.len() };
        all.extend(said);
        if drops_messages {
            let mut kept = kept(&all).into_iter();
            all.retain(|_| kept.next().unwrap_or(true));
        }
        let encoder = Self {
            last_user: all.iter().rposition(Message::is_asking),
            messages: all,
            thinking: settings.thinking,
            drop_thinking,
            add_generation_prompt: input.add_generation_prompt,
            continued: input.continue_final_message,
            takes_objects: input.is_normalized,
        };
        Ok((encoder, first))
    }

    fn write(&self, i: usize, out: &mut String) -> Result<(), Invalid> {
        match &self.messages[i] {
            Message::User { parts, .. } => {
                let parts = parts.iter().map(Part::write).collect::<Result<Vec<_>, _>>()?;
                out.extend([USER, &parts.join("\n\n")]);
            }
            Message::Other(turn) => self.other(i, turn, out)?,
        }
        self.follow(i, out)
    }

    fn other(&self, i: usize, turn: &Turn<'_>, out: &mut String) -> Result<(), Invalid> {
        let calls = turn.calls()?;
        let tools = turn.schemas()?.map(|schemas| tools_section(&schemas)).unwrap_or_default();
        let format = turn.response_format().unwrap_or_default();
        match turn.role {
            "system" => out.extend([turn.printed_or_empty("content"), tools, format]),
            "developer" => out.extend([USER, developer(turn)?, &tools, &format]),
            "latest_reminder" => out.extend([REMINDER, &turn.printed("content")]),
            "assistant" => self.assistant(i, turn, &calls, out)?,
            _ => return Err(turn.unknown_role()),
        }
        Ok(())
    }

    fn assistant(&self, i: usize, turn: &Turn<'_>, calls: &[Call<'_>], out: &mut String) -> Result<(), Invalid> {
        let answers_a_task = i.checked_sub(1).is_some_and(|before| self.messages[before].task().is_some());
        let is_current = self.last_user.is_none_or(|last| i > last);
        let continued = self.continued.filter(|_| i + 1 == self.messages.len());
        if self.thinking && !answers_a_task && (is_current || !self.drop_thinking) {
            out.push_str(&turn.printed_or_empty("reasoning_content"));
            if continued == Some(REASONING) {
                return Ok(());
            }
            out.push_str(THINK_END);
        }
        if continued == Some(REASONING) {
            return Err(reasoning_not_shown());
        }
        let calls = calls
            .iter()
            .map(|call| Ok(call.dsml(&arguments(call, self.takes_objects)?)))
            .collect::<Result<Vec<_>, Invalid>>()?;
        out.extend([turn.printed_or_empty("content"), dsml_block("tool_calls", &calls)]);
        if continued.is_none() && turn.given("wo_eos").is_none() {
            out.push_str(EOS);
        }
        Ok(())
    }

    /// Writes the start of the assistant's turn if that follows message `i`.
    fn follow(&self, i: usize, out: &mut String) -> Result<(), Invalid> {
        let (message, next) = (&self.messages[i], self.messages.get(i + 1));
        if next.is_some_and(|next| !matches!(next.role(), "assistant" | "latest_reminder")) {
            return Ok(());
        }
        if let Some(task) = message.task() {
            let (name, token) = known(task)?;
            if name == "action" {
                out.extend([ASSISTANT, if self.thinking { THINK } else { THINK_END }]);
            }
            out.push_str(token);
        } else if message.is_asking() && (next.is_some() || self.add_generation_prompt) {
            let is_current = self.last_user.is_none_or(|last| i >= last);
            let thinks = self.thinking && (is_current || !self.drop_thinking);
            out.extend([ASSISTANT, if thinks { THINK } else { THINK_END }]);
        }
        Ok(())
    }
}

/// Returns true for each message that stays when reasoning is dropped: all from the last question
/// on, and earlier ones with these roles.
fn kept(messages: &[Message<'_>]) -> Vec<bool> {
    const ROLES: &[&str] = &["user", "system", "latest_reminder", "direct_search_results", "assistant"];
    let last_user = messages.iter().rposition(Message::is_asking).unwrap_or_default();
    messages.iter().enumerate().map(|(i, message)| i >= last_user || ROLES.contains(&message.role())).collect()
}

fn known((path, task): Task<'_>) -> Result<(&'static str, &'static str), Invalid> {
    let known = TASKS.iter().find(|(name, _)| settings::reads(task, name));
    known.copied().ok_or_else(|| {
        let names: Vec<_> = TASKS.iter().map(|(name, _)| *name).collect();
        Invalid::new(path, format!("must be one of {}", names.join(", ")))
    })
}

fn developer<'t>(turn: &'t Turn<'_>) -> Result<&'t str, Invalid> {
    let content = turn.get("content").and_then(Value::as_str).filter(|content| !content.is_empty());
    content.ok_or_else(|| turn.invalid("content", "must be text, and not empty"))
}

/// Returns a call's arguments. Text that is not JSON is one argument.
fn arguments(call: &Call<'_>, takes_objects: bool) -> Result<Vec<(String, Json)>, Invalid> {
    let whole = || match call.arguments {
        Value::String(text) => Json::Text(text.clone()),
        other => Json::Scalar(python::dumps(other)),
    };
    match call.parse(takes_objects) {
        Err(LoadsError::NotJson | LoadsError::LongInteger) => Ok(vec![("arguments".to_owned(), whole())]),
        parsed => parsed.map_err(|why| call.unreadable(why)),
    }
}

fn tools_section(schemas: &str) -> String {
    format!(
        r#"

## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {THINK}), you MUST output your complete reasoning inside {THINK}...{THINK_END} BEFORE any tool calls or final response.

Otherwise, output directly after {THINK_END} with tool calls or final response.

### Available Tool Schemas

{schemas}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"#
    )
}
