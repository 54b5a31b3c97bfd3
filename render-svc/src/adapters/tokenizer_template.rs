//! `tokenizer-template`: the chat template that ships with the model, rendered as transformers'
//! `apply_chat_template` does.

mod reserved;
mod warnings;

pub(crate) use reserved::is_reserved;

use tandem_common::field::Path;
use tandem_model_files::tokenizer::CancelScope;
use tandem_template::literal::KnownNames;
use tandem_template::{Applied, StepsPool};

use crate::adapter::{Adapter, AdapterOutput, Input, Kind, Match};
use crate::conversation::{CONTENT, Conversation};
use crate::error::Error;
use crate::lost;
use crate::model::Model;
use crate::warning::Warning;

pub(super) const TOKENIZER_TEMPLATE: Adapter = Adapter {
    kind: Kind::Template,
    continued_fields: None,
    known_names: KnownNames::TEMPLATE,
    ..Adapter::new(
        "tokenizer-template",
        "the chat template that ships with the model, rendered as transformers renders it",
        matches,
        render,
    )
};

/// The subject of warnings about parts that are left out.
const TEMPLATE: &str = "the model's chat template";

fn matches(model: &Model) -> Match {
    if model.templates.is_empty() {
        Match::Incompatible("the model ships no chat template".to_owned())
    } else {
        Match::Selected("the model ships a chat template".to_owned())
    }
}

fn render(model: &Model, input: &Input<'_>) -> Result<AdapterOutput, Error> {
    let conversation = input.conversation;
    let named = match input.template {
        Some(resolved) => resolved,
        None => model.templates.choose(None, conversation.tools.is_some())?,
    };
    let template = &named.template;
    let args = reserved::left_out(&conversation.template_args);
    let _scope = tandem_template::CancelScope::start(|| CancelScope::check().is_err());
    let limits = input.limits.template(input.taint.is_some());
    let apply = |conversation: &Conversation| {
        let input = tandem_template::Input {
            messages: &conversation.messages,
            tools: conversation.tools.as_ref(),
            documents: conversation.documents.as_ref(),
            args: &args,
            special_tokens: &model.special_tokens,
            add_generation_prompt: input.add_generation_prompt,
            continue_final_message: input.continue_final_message,
            now: input.now,
            taint: input.taint,
        };
        template.apply(&input, &limits)
    };
    let Applied { text: prompt, read, .. } = apply(conversation)?;
    let mut warnings = warnings::of(named, conversation, &read);
    // A tainted rendering is compared with the prompt, and its warnings are not used.
    if input.taint.is_none() {
        let again = |changed: &Conversation| apply(changed).ok().map(|applied| applied.text);
        let _pool = StepsPool::start(limits.steps);
        let lost = lost::warnings(conversation, &named.facts, &prompt, TEMPLATE, again);
        let is_known = |lost: &Warning| warnings.iter().any(|known| known.path == lost.path);
        // The request itself cuts off the rest of the message of which it continues another field. Its content
        // comes after that field, which the model writes next.
        let continued = input.continue_final_message.filter(|field| *field != CONTENT);
        let last = Path::item("messages", conversation.messages.len().saturating_sub(1));
        let with_reason = |lost: Warning| match continued {
            Some(_) if lost.path == last => None,
            Some(field) if lost.path.starts_with(&last) => {
                let text = format!("not in the prompt: it ends within {field}, which the request continues");
                Some(Warning { text, ..lost })
            }
            _ => Some(lost),
        };
        let lost: Vec<_> = lost.into_iter().filter(|lost| !is_known(lost)).filter_map(with_reason).collect();
        warnings.extend(lost);
    }
    Ok(AdapterOutput { prompt, attachments: Vec::new(), warnings })
}
