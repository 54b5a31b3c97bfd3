//! Warnings about HF messages: the parts that the model's template leaves out of the prompt that the
//! generation service makes of them.

use serde_json::Value;

use super::hf_messages::{without_data, without_media};
use crate::adapter::{Input, Kind};
use crate::conversation::Conversation;
use crate::job::{Normalization, RenderOptions};
use crate::limits::Limits;
use crate::resolve::ResolvedRender;
use crate::warning::{Warning, WarningCode};

/// Warns of each part that is left out, where `messages` are those of the conversation as HF messages.
/// Without a template here, or if it fails, nothing is known.
#[must_use]
pub fn of_template(
    resolved: &ResolvedRender<'_>,
    conversation: &Conversation,
    messages: &[Value],
    options: &RenderOptions,
    limits: &Limits,
) -> Vec<Warning> {
    let (model, adapter) = (resolved.model, resolved.adapter());
    if adapter.kind != Kind::Template {
        return Vec::new();
    }
    let output = |conversation: &Conversation| {
        let input = Input {
            conversation,
            add_generation_prompt: resolved.add_generation_prompt,
            continue_final_message: None,
            template: None,
            is_normalized: options.normalization == Normalization::Capability,
            now: options.now,
            limits: *limits,
            taint: None,
        };
        (adapter.render)(model, &input).ok()
    };
    let conversation = with_messages(conversation, messages.iter().map(without_data).collect());
    let Some(rendered) = output(&conversation) else { return Vec::new() };
    let mut warnings = rendered.warnings;
    let are_lost = || {
        let without = with_messages(&conversation, conversation.messages.iter().map(without_media).collect());
        output(&without).is_some_and(|without| without.prompt == rendered.prompt)
    };
    if let Some(path) = conversation.first_image().filter(|_| model.takes_images && are_lost()) {
        let text = "not in the prompt: the model's chat template leaves images out".to_owned();
        warnings.push(Warning { code: WarningCode::ImagesIgnored, path, text });
    }
    warnings
}

fn with_messages(conversation: &Conversation, messages: Vec<Value>) -> Conversation {
    let Conversation { messages: _, tools, documents, template_args } = conversation;
    let (tools, documents, template_args) = (tools.clone(), documents.clone(), template_args.clone());
    Conversation { messages, tools, documents, template_args }
}
