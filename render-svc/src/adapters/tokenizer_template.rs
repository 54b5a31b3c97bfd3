//! `tokenizer-template`: the chat template that ships with the model, rendered as transformers' `apply_chat_template` does.

mod reserved;
mod warnings;

use tandem_template::{self, ArgumentsShape};

use super::{Adapter, Input, Kind, Rendering, Verdict};
use crate::chat::Conversation;
use crate::error::Error;
use crate::models::Model;

pub(super) const TOKENIZER_TEMPLATE: Adapter = Adapter {
    name: "tokenizer-template",
    description: "the chat template that ships with the model, rendered as transformers renders it",
    serves,
    kind: Kind::Template,
    stops_at_images: Conversation::has_images,
    markup: &[],
    turn_ends: &[],
    arguments: ArgumentsShape::Either,
    leaves_bos_to_tokenizer: false,
    render,
};

fn serves(model: &Model) -> Verdict {
    match model.templates.is_empty() {
        false => Verdict::Serves("the model ships a chat template".to_owned()),
        true => Verdict::Cannot("the model ships no chat template".to_owned()),
    }
}

fn render(model: &Model, input: &Input<'_>) -> Result<Rendering, Error> {
    let conversation = input.conversation;
    let template = &model.templates.choose(input.template, conversation.tools.is_some())?.template;
    let args = reserved::left_out(&conversation.template_args);
    let applied = template.apply(
        &tandem_template::Input {
            messages: &conversation.messages,
            tools: conversation.tools.as_ref(),
            documents: conversation.documents.as_ref(),
            args: &args,
            special_tokens: &model.special_tokens,
            add_generation_prompt: input.add_generation_prompt,
            continue_final_message: input.continue_final_message,
            now: input.now,
            taint: input.marks,
        },
        &input.limits.template(input.marks.is_some()),
    )?;
    Ok(Rendering { prompt: applied.text, attachments: Vec::new(), warnings: warnings::of(template, conversation) })
}
