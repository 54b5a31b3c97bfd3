//! The settings of an encoder, from `template_args`.

use serde_json::Value;
use tandem_common::field::Path;
use tandem_template::{python, taint};

use super::markup::BOS;
use crate::adapter::EncoderArgument;
use crate::conversation::{Invalid, Object, kind};
use crate::warning::{Warning, WarningCode};

/// The settings of an encoder. Unknown template_args are ignored, and null counts as unset.
pub(super) struct Settings<'a> {
    pub(super) thinking: bool,
    /// Messages before the conversation that the model's cache already contains: they are read, not
    /// written.
    pub(super) context: &'a [Value],
    /// Leave out the reasoning of earlier turns.
    pub(super) drop_thinking: bool,
    bos: bool,
}

impl<'a> Settings<'a> {
    pub(super) fn read(args: &'a Object, drop_thinking: bool) -> Result<Self, Invalid> {
        Ok(Self {
            thinking: thinking(args)?,
            context: context(args)?,
            drop_thinking: switch(args, "drop_thinking")?.unwrap_or(drop_thinking),
            bos: switch(args, "add_default_bos_token")?.unwrap_or(true),
        })
    }

    /// Returns the text before the first message.
    pub(super) fn start(&self) -> String {
        if self.bos && self.context.is_empty() { BOS.to_owned() } else { String::new() }
    }
}

fn thinking(args: &Object) -> Result<bool, Invalid> {
    match set(args, "thinking_mode") {
        None => Ok(switch(args, thinking_switch(args))?.unwrap_or(false)),
        Some(mode) if reads(mode, "thinking") => Ok(true),
        Some(mode) if reads(mode, "chat") => Ok(false),
        Some(_) => Err(Invalid::new("template_args.thinking_mode", "must be \"thinking\" or \"chat\"")),
    }
}

/// Returns true if the value is this word, tainted or not.
pub(super) fn reads(value: &Value, word: &str) -> bool {
    value.as_str().is_some_and(|text| taint::strip(text) == word)
}

/// The arguments that switch thinking on or off.
pub(super) const SWITCHES: [&str; 3] = ["thinking_mode", "thinking", "enable_thinking"];

/// The template_args of both encoders.
pub(super) const ARGUMENTS: [EncoderArgument; 6] = [
    EncoderArgument { words: &["chat", "thinking"], ..EncoderArgument::new("thinking_mode") },
    EncoderArgument::new("thinking"),
    EncoderArgument::new("enable_thinking"),
    EncoderArgument { needs: Some("thinking"), ..EncoderArgument::new("drop_thinking") },
    EncoderArgument::new("add_default_bos_token"),
    EncoderArgument::new("context"),
];

/// The switches that may be objects with a type, as in DeepSeek's API: `{"type": "enabled"}`.
const THINKING: [&str; 2] = ["thinking", "enable_thinking"];

/// Words for a switch that is on or off. Any other word is read as off, with a warning.
const ON: [&str; 5] = ["1", "true", "on", "enabled", "thinking"];
const OFF: [&str; 8] = ["", "0", "false", "off", "disabled", "chat", "no", "none"];

/// Returns the name of the switch that decides: the first one that is set.
fn thinking_switch(args: &Object) -> &'static str {
    let [first, second] = THINKING;
    if set(args, first).is_some() { first } else { second }
}

/// Returns an argument; None if it is null, which is the same as none.
fn set<'a>(args: &'a Object, name: &str) -> Option<&'a Value> {
    args.get(name).filter(|value| !value.is_null())
}

/// Returns a switch; None if it is not set.
fn switch(args: &Object, name: &str) -> Result<Option<bool>, Invalid> {
    let Some(value) = set(args, name) else { return Ok(None) };
    let is_on = match value {
        Value::String(text) => ON.contains(&word(text).as_str()),
        Value::Object(_) => type_of(name, value)?,
        Value::Array(_) => return Err(not_understood(name)),
        scalar => python::is_true(scalar),
    };
    Ok(Some(is_on))
}

fn word(text: &str) -> String {
    taint::strip(text).trim().to_lowercase()
}

fn type_of(name: &str, value: &Value) -> Result<bool, Invalid> {
    match kind(value).filter(|_| THINKING.contains(&name)).map(word).as_deref() {
        Some("enabled") => Ok(true),
        Some("disabled") => Ok(false),
        _ => Err(not_understood(name)),
    }
}

fn not_understood(name: &str) -> Invalid {
    let types = if THINKING.contains(&name) { ", or {\"type\": \"enabled\"} or {\"type\": \"disabled\"}" } else { "" };
    Invalid::new(Path::from("template_args").key(name.to_owned()), format!("must be true or false{types}"))
}

/// Returns warnings for switches whose value the encoder reads in part, or as its opposite.
pub(super) fn warnings(args: &Object) -> Vec<Warning> {
    let thinking = set(args, "thinking_mode").is_none().then(|| thinking_switch(args));
    let names = ["drop_thinking", "add_default_bos_token"].into_iter().chain(thinking);
    let problems = names.filter_map(|name| Some((name, misread(args.get(name)?)?)));
    problems.map(|(name, problem)| ignored(name, problem)).collect()
}

/// Returns the problem of a switch whose value is read in part, or is no word for on or off.
fn misread(value: &Value) -> Option<&'static str> {
    match value {
        Value::String(text) if [&ON[..], &OFF].concat().contains(&word(text).as_str()) => None,
        Value::String(_) => Some("is no known word and is read as off; set true or false"),
        Value::Number(number) if !matches!(number.as_f64(), Some(0.0 | 1.0)) => {
            Some("is read as on, since it is not 0; set true or false")
        }
        Value::Object(fields) if fields.len() > 1 => Some("has keys besides \"type\": ignored"),
        _ => None,
    }
}

/// Returns a warning about one of the template_args.
pub(super) fn ignored(name: &str, problem: &str) -> Warning {
    let path = Path::from("template_args").key(name.to_owned());
    let text = format!("{path} {problem}");
    Warning::new(WarningCode::TemplateArgsIgnored, path, text)
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
