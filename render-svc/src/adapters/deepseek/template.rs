//! Chat templates in the folders of models whose maker ships an encoder and no template.

use serde_json::{Value, json};
use tandem_template::LocalTime;

use super::markup::BOS;
use crate::adapter::{AdapterOutput, Input};
use crate::conversation::Conversation;
use crate::error::Error;
use crate::model::Model;
use crate::probes::LIMITS;

type Render = fn(&Model, &Input<'_>) -> Result<AdapterOutput, Error>;

/// Returns how the model's default chat template differs from the encoder for short conversations;
/// None if it does not, or if the model has none. A template that exceeds the limits of probes
/// differs.
pub(super) fn difference(model: &Model, encoder: Render) -> Option<String> {
    let template = &model.templates.choose(None, false).ok()?.template;
    let is_different = |messages: &Vec<Value>| {
        let conversation = Conversation { messages: messages.clone(), ..Conversation::default() };
        let encoded = encoder(model, &Input::of(&conversation)).map(|output| output.prompt);
        let input = tandem_template::Input {
            messages,
            tools: None,
            documents: None,
            args: &conversation.template_args,
            special_tokens: &model.special_tokens,
            add_generation_prompt: true,
            continue_final_message: None,
            now: LocalTime::EPOCH,
            taint: None,
        };
        let applied = template.apply(&input, &LIMITS).map(|applied| applied.text);
        // A model whose files name no bos token has a template without one.
        let without_bos = |prompt: String| prompt.trim_start_matches(BOS).to_owned();
        applied.ok().map(without_bos) != encoded.ok().map(without_bos)
    };
    let differs = conversations().iter().any(is_different);
    differs.then(|| "the model ships a chat template that renders differently from its maker's encoder".to_owned())
}

/// Returns a question, and a conversation with a system message and a second question.
fn conversations() -> [Vec<Value>; 2] {
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    [
        vec![message("user", "first")],
        vec![
            message("system", "rule"),
            message("user", "first"),
            message("assistant", "answer"),
            message("user", "second"),
        ],
    ]
}
