//! The choices of one request, made once: adapter, output form, chat template.

use std::sync::Arc;

use crate::adapter::{Adapter, Kind};
use crate::catalog::{Resolution, ResolvedAdapter, ServedModel};
use crate::checks::Images;
use crate::conversation::{CONTENT, Conversation, Invalid, REASONING_CONTENT};
use crate::error::Error;
use crate::job::{RenderJob, RenderOptions};
use crate::model::{Model, NamedTemplate};

/// A request's model, adapter and template.
#[derive(Debug)]
pub struct ResolvedRender<'m> {
    pub model: &'m Arc<Model>,
    /// The adapter, applied to the model.
    pub adapter: ResolvedAdapter,
    /// The form of the output.
    pub form: OutputForm<'m>,
    /// End the prompt with the start of the assistant's turn.
    pub add_generation_prompt: bool,
}

/// The form in which a conversation is rendered.
#[derive(Debug, Clone, Copy)]
pub enum OutputForm<'m> {
    /// Text, with this chat template. None for an adapter that renders without one.
    Prompt(Option<&'m NamedTemplate>),
    /// Messages for a vision-language processor.
    HfMessages,
}

impl<'m> ResolvedRender<'m> {
    /// Resolves a job with these images for a model. Template arguments that are read as options become options.
    ///
    /// # Errors
    /// Options contradict each other, the pinned adapter cannot render for the model, there is no
    /// message to render, the model lacks the template, or the adapter cannot continue the field.
    pub fn new(served: &'m ServedModel, job: &mut RenderJob, images: &Images) -> Result<Self, Error> {
        let adapter = served.resolve(job.options.adapter.as_deref())?;
        if !adapter.adapter().drops_unknown_args {
            job.take_template_args()?;
        }
        let RenderJob { conversation, options, .. } = &*job;
        let add_generation_prompt = generation_prompt(options)?;
        let form = if becomes_hf_messages(&adapter, conversation, images) {
            OutputForm::HfMessages
        } else {
            OutputForm::Prompt(template(served, adapter.adapter(), job)?)
        };
        if let Some(field) = options.continued_field() {
            check_continued(field, &form, adapter.adapter())?;
        }
        Ok(Self { model: &served.model, adapter, form, add_generation_prompt })
    }

    /// Returns the adapter that renders.
    #[must_use]
    pub fn adapter(&self) -> &Adapter {
        self.adapter.adapter()
    }

    /// Returns the chat template that renders, if any.
    #[must_use]
    pub fn template(&self) -> Option<&'m NamedTemplate> {
        match self.form {
            OutputForm::Prompt(template) => template,
            OutputForm::HfMessages => None,
        }
    }

    /// Returns the key of the last message that a request continues: another one if the template reads its
    /// reasoning there.
    #[must_use]
    pub fn continued_key<'f>(&self, field: &'f str, conversation: &Conversation) -> &'f str {
        let key = self.template().and_then(|named| named.facts.reasoning.key);
        let is_renamed = |key: &&str| {
            let last = conversation.messages.last();
            field == REASONING_CONTENT && last.is_some_and(|last| last.get(field).is_none() && last.get(*key).is_some())
        };
        key.filter(is_renamed).unwrap_or(field)
    }

    /// Returns the adapter that renders and the reason, for people.
    #[must_use]
    pub fn resolution(&self) -> Arc<Resolution> {
        match self.form {
            OutputForm::Prompt(_) => Arc::clone(&self.adapter.resolution),
            OutputForm::HfMessages => hf_resolution(),
        }
    }
}

/// Returns the adapter that would render the conversation, and the reason.
///
/// # Errors
/// There is no adapter of the pinned name, or it cannot render for the model.
pub fn explain(
    served: &ServedModel,
    pinned: Option<&str>,
    conversation: &Conversation,
) -> Result<Arc<Resolution>, Error> {
    let adapter = served.resolve(pinned)?;
    Ok(if becomes_hf_messages(&adapter, conversation, &Images::of(conversation)) {
        hf_resolution()
    } else {
        adapter.resolution
    })
}

/// The reason why images keep an adapter from rendering text.
pub const HF_REASON: &str = "the conversation has images, so no text is rendered";

fn hf_resolution() -> Arc<Resolution> {
    Arc::new(Resolution { adapter: None, reason: HF_REASON.to_owned(), rejected: Vec::new() })
}

/// Returns true if images keep the adapter from rendering text. A pinned adapter always renders
/// text.
fn becomes_hf_messages(adapter: &ResolvedAdapter, conversation: &Conversation, images: &Images) -> bool {
    images.count > 0 && !adapter.is_pinned && (adapter.adapter().stops_at_images)(conversation)
}

fn generation_prompt(options: &RenderOptions) -> Result<bool, Invalid> {
    let is_continued = options.continued_field().is_some();
    let wanted = options.add_generation_prompt.unwrap_or(!is_continued);
    if wanted && is_continued {
        let problem = "cannot be combined with continue_final_message: a turn is either continued or begun";
        return Err(Invalid::new("add_generation_prompt", problem));
    }
    Ok(wanted)
}

/// Fails if the output cannot end within this field of the final message.
fn check_continued(field: &str, form: &OutputForm<'_>, adapter: &Adapter) -> Result<(), Invalid> {
    let refused = |what: &str, fields: &str| {
        let problem = format!("cannot be {field:?}: {what} can only end within {fields} of the final message");
        Err(Invalid::new("continue_final_message", problem))
    };
    match (form, adapter.continued_fields) {
        (OutputForm::HfMessages, _) if field != CONTENT => refused("HF messages", CONTENT),
        (OutputForm::Prompt(_), Some(known)) if !known.contains(&field) => {
            refused(&format!("a prompt of {}", adapter.name), &known.join(" or "))
        }
        _ => Ok(()),
    }
}

/// Returns the chat template of an adapter that renders with one. Only a family's encoder renders a
/// conversation without messages.
fn template<'m>(
    served: &'m ServedModel,
    adapter: &Adapter,
    job: &RenderJob,
) -> Result<Option<&'m NamedTemplate>, Error> {
    let RenderJob { conversation, options, .. } = job;
    if adapter.kind != Kind::Family {
        conversation.check_not_empty()?;
    }
    match adapter.kind {
        Kind::Family | Kind::Format => Ok(None),
        Kind::Template => {
            let templates = &served.model.templates;
            templates.choose(options.template.as_deref(), conversation.tools.is_some()).map(Some)
        }
    }
}
