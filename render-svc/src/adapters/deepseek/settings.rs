//! The settings of an encoder, from `template_args`.

use serde_json::Value;
use tandem_template::taint;

use super::markup::BOS;
use crate::conversation::{Invalid, Object};
use tandem_template::python;

/// The settings of an encoder. Unknown template_args are ignored.
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
            drop_thinking: args.get("drop_thinking").map_or(drop_thinking, is_on),
            bos: args.get("add_default_bos_token").is_none_or(is_on),
        })
    }

    /// Returns the text before the first message.
    pub(super) fn start(&self) -> String {
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

/// Returns true if the value is this word, tainted or not.
pub(super) fn reads(value: &Value, word: &str) -> bool {
    value.as_str().is_some_and(|text| taint::strip(text) == word)
}

/// Returns true if a switch is on. Switches may be words.
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
