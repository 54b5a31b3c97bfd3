//! The start of the assistant's turn in the prompts of an adapter that reads no template.

use serde_json::json;

use super::Reasoning;
use super::probe::shown;
use crate::adapter::{Adapter, Input};
use crate::conversation::Conversation;
use crate::model::Model;

/// Returns the text that the adapter writes after a question to start an answer, without special
/// tokens and reasoning.
pub(super) fn of_adapter(adapter: &Adapter, model: &Model, markers: Option<Reasoning>) -> Option<String> {
    let tokenizer = model.tokenizer.as_ref().ok()?;
    let messages = vec![json!({"role": "user", "content": "question"})];
    let conversation = Conversation { messages, ..Conversation::default() };
    let render = |add_generation_prompt| {
        let input = Input { add_generation_prompt, ..Input::of(&conversation) };
        (adapter.render)(model, &input).ok().map(|output| output.prompt)
    };
    shown(tokenizer, render(true)?.strip_prefix(&render(false)?)?, markers)
}
