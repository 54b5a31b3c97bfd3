//! `chatml`, `llama3` and `tagged`: built-in formats for local models that ship no chat template. A
//! format consists of the markers around a turn; the same code renders all of them. Tools are
//! described in the system prompt. Calls and results are tagged text.

mod guess;

use serde_json::{Value, json};
use tandem_common::field::Path;

pub(super) use self::guess::{Guess, guess};
use crate::adapter::{Adapter, AdapterOutput, Input, Match};
use crate::conversation::{Conversation, Invalid, Object, function, kind, push_block, text};
use crate::error::Error;
use crate::model::Model;
use crate::warning::{Warning, WarningCode, ignored};
use tandem_template::python;
use tandem_template::taint;

pub(super) const CHATML: Adapter = CHATML_FORMAT.adapter(
    "turns between <|im_start|> and <|im_end|>, tools described in the system prompt",
    |model| CHATML_FORMAT.matches(model),
    |_, input| CHATML_FORMAT.render(input),
);

pub(super) const LLAMA3: Adapter = LLAMA3_FORMAT.adapter(
    "turns under header tokens, ended by <|eot_id|>, tools described in the system prompt",
    |model| LLAMA3_FORMAT.matches(model),
    |_, input| LLAMA3_FORMAT.render(input),
);

pub(super) const TAGGED: Adapter = TAGGED_FORMAT.adapter(
    "turns under <|role|> lines, ended by <|end|>, tools described in the system prompt",
    |model| TAGGED_FORMAT.matches(model),
    |_, input| TAGGED_FORMAT.render(input),
);

/// Markers of the tools section and of calls.
pub(super) const MARKUP: &[&str] = &["<tool_call>", "</tool_call>", "<tool_result>", "</tool_result>"];

const IGNORED: &[WarningCode] = &[WarningCode::DocumentsIgnored, WarningCode::TemplateArgsIgnored];

/// The markers of turns.
struct Format {
    name: &'static str,
    start: &'static str,
    before_role: &'static str,
    after_role: &'static str,
    end: &'static str,
    /// Texts that end the model's turn: the parts of `end`, the longer one first. A model that never
    /// writes `end` starts the next turn, so a format may list the starts of turns too.
    turn_ends: &'static [&'static str],
}

const CHATML_FORMAT: Format = Format {
    name: "chatml",
    start: "",
    before_role: "<|im_start|>",
    after_role: "\n",
    end: "<|im_end|>\n",
    turn_ends: &["<|im_end|>"],
};

const LLAMA3_FORMAT: Format = Format {
    name: "llama3",
    start: "<|begin_of_text|>",
    before_role: "<|start_header_id|>",
    after_role: "<|end_header_id|>\n\n",
    end: "<|eot_id|>",
    turn_ends: &["<|eot_id|>"],
};

const TAGGED_FORMAT: Format = Format {
    name: "tagged",
    start: "",
    before_role: "<|",
    after_role: "|>\n",
    end: "\n<|end|>\n",
    turn_ends: &["\n<|end|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"],
};

impl Format {
    /// Returns the row of this format.
    const fn adapter(
        &self,
        description: &'static str,
        matches: fn(&Model) -> Match,
        render: fn(&Model, &Input<'_>) -> Result<AdapterOutput, Error>,
    ) -> Adapter {
        let turn_ends = self.turn_ends;
        Adapter { markup: MARKUP, turn_ends, ..Adapter::new(self.name, description, matches, render) }
    }

    fn matches(&self, model: &Model) -> Match {
        if !model.artifacts.templates.is_empty() {
            return Match::NotSelected("the model ships a chat template".to_owned());
        }
        let Guess { format, reason } = guess(model);
        if format == Some(self.name) { Match::Guessed(reason) } else { Match::NotSelected(reason) }
    }

    fn render(&self, input: &Input<'_>) -> Result<AdapterOutput, Error> {
        let turns = turns(input.conversation)?;
        let mut prompt = self.start.to_owned();
        for (i, turn) in turns.iter().enumerate() {
            self.open(turn.role, &mut prompt);
            prompt.push_str(&turn.text);
            let is_open = input.continue_final_message.is_some() && i + 1 == turns.len();
            prompt.push_str(if is_open { "" } else { self.end });
        }
        if input.add_generation_prompt {
            self.open("assistant", &mut prompt);
        }
        let mut warnings = ignored(self.name, input.conversation, IGNORED);
        warnings.extend(lost_parameters(input.conversation));
        Ok(AdapterOutput { prompt, attachments: Vec::new(), warnings })
    }

    fn open(&self, role: &str, prompt: &mut String) {
        prompt.extend([self.before_role, role, self.after_role]);
    }
}

/// The role and text of one message in the prompt.
struct Turn {
    role: &'static str,
    text: String,
}

/// Returns a turn for each message. Tools are described at the end of a leading system message, or
/// in an added one.
fn turns(conversation: &Conversation) -> Result<Vec<Turn>, Invalid> {
    let turns = conversation.messages.iter().enumerate();
    let turns = turns.map(|(i, message)| turn(message).map_err(|e| e.within(Path::item("messages", i))));
    let mut turns: Vec<Turn> = turns.collect::<Result<_, _>>()?;
    let Some(tools) = conversation.tools.as_ref().and_then(Value::as_array).filter(|tools| !tools.is_empty()) else {
        return Ok(turns);
    };
    let section = tools_section(tools)?;
    match turns.first_mut() {
        Some(Turn { role: "system", text }) if text.is_empty() => *text = section,
        Some(Turn { role: "system", text }) => text.extend(["\n\n", &section]),
        _ => turns.insert(0, Turn { role: "system", text: section }),
    }
    Ok(turns)
}

fn turn(message: &Value) -> Result<Turn, Invalid> {
    let text = text(message, tagged_text)?;
    match message.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Ok(Turn { role: "system", text }),
        Some("user") => Ok(Turn { role: "user", text }),
        Some("assistant") => Ok(Turn { role: "assistant", text: with_calls(text, message)? }),
        Some("tool" | "function") => Ok(Turn { role: "user", text: tool_result(&text) }),
        _ => Err(Invalid::new("role", "must be system, developer, user, assistant or tool for this format")),
    }
}

/// Joins blocks to text, with tagged calls and results.
pub(super) fn tagged_text(blocks: &[Value]) -> Result<String, Invalid> {
    let mut out = String::new();
    for (i, block) in blocks.iter().enumerate() {
        let within = |e: Invalid| e.within(Path::item("content", i));
        match kind(block) {
            Some("tool_use") => push_line(&mut out, &tool_call(block, "input").map_err(within)?),
            Some("tool_result") => push_line(&mut out, &tool_result(&text(block, tagged_text).map_err(within)?)),
            _ => push_block(&mut out, block, i)?,
        }
    }
    Ok(out)
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(if out.is_empty() { "" } else { "\n" });
    out.push_str(line);
}

/// Returns the assistant's text, then its calls.
pub(super) fn with_calls(mut text: String, message: &Value) -> Result<String, Invalid> {
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(calls)) => calls.as_slice(),
        Some(_) => return Err(Invalid::new("tool_calls", "must be a list")),
    };
    for (i, call) in calls.iter().enumerate() {
        let (steps, function) = function(call);
        let within = |e: Invalid| e.within(Path::item("tool_calls", i).join(steps));
        push_line(&mut text, &tool_call(function, "arguments").map_err(within)?);
    }
    Ok(text)
}

fn tool_call(call: &Value, arguments: &str) -> Result<String, Invalid> {
    let name = name(call)?;
    let arguments = call.get(arguments).map_or_else(|| Value::Object(Object::new()), as_object);
    Ok(format!("<tool_call>\n{}\n</tool_call>", python::dumps(&json!({"name": name, "arguments": arguments}))))
}

fn name(function: &Value) -> Result<&str, Invalid> {
    let name = function.get("name").and_then(Value::as_str).ok_or_else(|| Invalid::new("name", "must be a string"))?;
    if name.is_empty() { Err(Invalid::new("name", "must not be empty")) } else { Ok(name) }
}

/// Returns arguments as an object if they are the JSON text of one.
fn as_object(arguments: &Value) -> Value {
    let parsed = arguments.as_str().and_then(taint::parse_object);
    parsed.map_or_else(|| arguments.clone(), Value::Object)
}

fn tool_result(text: &str) -> String {
    format!("<tool_result>{text}</tool_result>")
}

/// Returns the section of the system prompt that describes the tools.
fn tools_section(tools: &[Value]) -> Result<String, Invalid> {
    const HEAD: &str = "## Available Tools\n\n\
        To call a tool, write a <tool_call> block with one JSON object in it:\n\n\
        <tool_call>\n{\"name\": \"tool_name\", \"arguments\": {\"parameter\": \"value\"}}\n</tool_call>\n\n\
        The answer comes in a <tool_result> block. Then call another tool, or reply to the user.";
    let mut section = HEAD.to_owned();
    for (i, tool) in tools.iter().enumerate() {
        let (steps, function) = function(tool);
        section.push_str(&describe(function).map_err(|e| e.within(Path::item("tools", i).join(steps)))?);
    }
    Ok(section)
}

fn describe(function: &Value) -> Result<String, Invalid> {
    let name = name(function)?;
    let description = function.get("description").and_then(Value::as_str);
    let description = description.map(|text| format!("\n{text}")).unwrap_or_default();
    let parameters = digest(function).map(|digest| format!("\nParameters: {digest}")).unwrap_or_default();
    Ok(format!("\n\n### {name}{description}{parameters}"))
}

/// Warns of tools whose parameters the prompt omits because they are no schema of an object.
fn lost_parameters(conversation: &Conversation) -> impl Iterator<Item = Warning> {
    let tools = conversation.tools.as_ref().and_then(Value::as_array).into_iter().flatten().enumerate();
    tools.filter_map(|(i, tool)| {
        let (steps, function) = function(tool);
        let given = function.get("parameters").filter(|parameters| python::is_true(parameters))?;
        let is_lost = digest(function).is_none() && !is_empty_schema(given);
        let text = "parameters are not a JSON schema with properties: not shown to the model";
        let path = Path::item("tools", i).join(steps).key("parameters");
        is_lost.then(|| Warning::new(WarningCode::ToolParametersIgnored, path, text))
    })
}

/// Returns true if the schema declares no parameters.
fn is_empty_schema(schema: &Value) -> bool {
    const SAYS_NOTHING: [&str; 6] = ["required", "additionalProperties", "$schema", "title", "description", "strict"];
    schema.as_object().is_some_and(|schema| {
        schema.iter().all(|(key, value)| match key.as_str() {
            "type" => value == "object",
            "properties" => !python::is_true(value),
            key => SAYS_NOTHING.contains(&key),
        })
    })
}

/// Returns the parameters in the form `{path (string): File to read, limit: integer}`.
fn digest(function: &Value) -> Option<String> {
    let parameters = function.get("parameters")?.get("properties")?.as_object()?;
    let parameters: Vec<_> = parameters.iter().map(|(name, schema)| parameter(name, schema)).collect();
    Some(format!("{{{}}}", parameters.join(", ")))
}

fn parameter(name: &str, schema: &Value) -> String {
    let kind = type_name(schema.get("type"));
    match schema.get("description").and_then(Value::as_str) {
        Some(description) if !description.is_empty() => format!("{name} ({kind}): {description}"),
        _ => format!("{name}: {kind}"),
    }
}

/// Returns the types of a schema. A schema without a type allows any value.
fn type_name(kind: Option<&Value>) -> String {
    match kind {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => kinds.iter().map(python::to_str).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    }
}
