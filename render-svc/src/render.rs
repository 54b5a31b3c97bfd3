//! The pipeline: check → resolve → prepare → render → tokenize. Pure: the same job gives the same answer.

mod prepare;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use serde_json::Value;
use tandem_common::telemetry::Span;
use tandem_model_files::digest::hex_sha256;
use tandem_model_files::tokenizer::{Around, EncodeOptions, Encoding};
use tandem_template::LocalTime;
use tandem_template::taint::TaintScope;

use crate::adapters::{
    self, Adapter, Attachment, Choice, Dialect, Input, Kind, Registry, Rendering, Resolution, Warning, WarningCode,
};
use crate::capabilities::Capabilities;
use crate::chat::{Conversation, Invalid};
use crate::error::Error;
use crate::hf_messages::hf_messages;
use crate::limits::Limits;
use crate::models::{Model, Models};
use crate::output_spec::OutputSpec;
use prepare::Prepared;

/// What to render, and how.
#[derive(Debug, Clone)]
pub struct RenderJob {
    /// The model's id; empty for the only one.
    pub model: String,
    /// What is said.
    pub conversation: Conversation,
    /// How to render it.
    pub options: RenderOptions,
    /// Tokenize the prompt as well. [`ControlTokens::Literal`] always does.
    pub return_token_ids: bool,
    /// And tell where in the prompt each token lies.
    pub return_offsets: bool,
}

/// How to render.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Default: true, unless the final message is continued.
    pub add_generation_prompt: Option<bool>,
    /// Leave the last message open.
    pub continue_final_message: bool,
    /// Pins an adapter by name.
    pub adapter: Option<String>,
    /// What templates see as now.
    pub now: LocalTime,
    /// How messages are rewritten first.
    pub normalization: Normalization,
    /// Which of the model's chat templates to render with.
    pub template: Option<String>,
    /// What control tokens mean in what the caller sends.
    pub control_tokens: ControlTokens,
    /// What the template can take, in place of what is known of the model.
    pub capabilities: Option<Capabilities>,
    /// In which shape the conversation came.
    pub dialect: Dialect,
    /// What it may take; not the caller's to say.
    pub limits: Limits,
}

/// What the spelling of a control token means in what the caller sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ControlTokens {
    /// The control token, as in transformers.
    #[default]
    Tokens,
    /// Nothing but its letters.
    Literal,
}

/// How messages are rewritten before a template sees them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Normalization {
    /// To what the model's template can take: lists of text blocks become text, consecutive system messages one, and whatever the
    /// model's capabilities demand.
    #[default]
    Capability,
    /// Not at all: exactly what transformers would get.
    None,
}

/// A rendered conversation.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The model that it was rendered for.
    pub model: Arc<Model>,
    /// What the model must be fed.
    pub output: Output,
    /// Which adapter rendered it, and why.
    pub resolution: Arc<Resolution>,
    /// What the caller may not expect.
    pub warnings: Vec<Warning>,
    /// Of the chat template that was rendered; lower-case hex. None where none was.
    pub template_sha256: Option<Arc<str>>,
    /// How the model's answer is to be read.
    pub output_spec: Arc<OutputSpec>,
    /// Time spent in the adapter.
    pub render_time: Duration,
    /// Time spent in the tokenizer.
    pub tokenize_time: Duration,
}

/// What the model must be fed.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Text.
    Prompt {
        /// The exact prompt.
        text: String,
        /// The media that markers in it stand for, in the order of the markers.
        attachments: Vec<Attachment>,
        /// Its ids, and where in it they lie, when asked for.
        tokens: Option<Encoding>,
    },
    /// Messages for a vision-language processor.
    HfMessages(Vec<Value>),
}

impl Rendered {
    /// Lower-case hex; None for HF messages.
    #[must_use]
    pub fn prompt_sha256(&self) -> Option<String> {
        match &self.output {
            Output::Prompt { text, .. } => Some(hex_sha256(text.as_bytes())),
            Output::HfMessages(_) => None,
        }
    }
}

/// Renders one job.
///
/// # Errors
/// [`Error`]; never a fall back to another adapter.
pub fn render(models: &Models, registry: &Registry, job: RenderJob) -> Result<Rendered, Error> {
    let model = Arc::clone(models.get(&job.model)?);
    job.conversation.check()?;
    let limits = job.options.limits;
    limits.check_images(&job.conversation)?;
    let add_generation_prompt = generation_prompt(&job.options)?;
    let start = Instant::now();
    let choice = choose(&model, registry, job.options.adapter.as_deref())?;
    if becomes_hf_messages(&choice, &job.conversation) {
        return hf(model, &choice, job, start);
    }
    let RenderJob { conversation, options, return_token_ids, return_offsets, .. } = job;
    let prepared = prepare::for_text(conversation, &options, &choice, &model)?;
    let Prepared { conversation, mut warnings, origins } = prepared;
    let Choice { adapter, resolution, .. } = choice;
    let input = Input {
        conversation: &conversation,
        add_generation_prompt,
        continue_final_message: options.continue_final_message,
        template: options.template.as_deref(),
        dialect: options.dialect,
        now: options.now,
        limits,
        marks: None,
    };
    let attributes =
        || [KeyValue::new("tandem.model", model.id.clone()), KeyValue::new("tandem.adapter", adapter.name)];
    let rendering = Span::current().part("render", attributes).in_scope(|| (adapter.render)(&model, &input));
    let Rendering { prompt: text, attachments, warnings: more } = rendering.map_err(|error| origins.error(error))?;
    let attachments = attachments.into_iter().map(|attachment| origins.attachment(attachment)).collect();
    if text.len() as u64 > limits.max_prompt_bytes {
        return Err(Error::PromptTooLarge { limit: limits.max_prompt_bytes, found: text.len() });
    }
    warnings.extend(more.into_iter().map(|warning| origins.warning(warning)));
    let warnings = adapters::bounded(warnings);
    let template_sha256 = template_sha256(&model, &adapter, &input)?;
    let render_time = start.elapsed();
    let start = Instant::now();
    let literal = match options.control_tokens {
        ControlTokens::Tokens => None,
        ControlTokens::Literal => Some(users_control_tokens(&model, &adapter, &input, &text)?),
    };
    let tokens = match return_token_ids || return_offsets || literal.is_some() {
        true => Some(
            Span::current()
                .part("tokenize", || [])
                .in_scope(|| tokenize(&model, &adapter, &text, &literal.unwrap_or_default(), return_offsets))?,
        ),
        false => None,
    };
    Ok(Rendered {
        output_spec: model.output_spec(&adapter),
        model,
        resolution,
        warnings,
        template_sha256,
        output: Output::Prompt { text, attachments, tokens },
        render_time,
        tokenize_time: start.elapsed(),
    })
}

fn tokenize(
    model: &Model,
    adapter: &Adapter,
    text: &str,
    literal: &[Range<usize>],
    offsets: bool,
) -> Result<Encoding, Error> {
    let around = if adapter.leaves_bos_to_tokenizer { Around::Before } else { Around::Nothing };
    let options = EncodeOptions { around, literal, offsets };
    Ok(model.tokenizer()?.encode_with(text, &options)?)
}

fn option_ignored(option: &str, why: &str) -> Warning {
    Warning { code: WarningCode::OptionIgnored, path: option.to_owned(), text: format!("{why}: ignored") }
}

fn template_sha256(model: &Model, adapter: &Adapter, input: &Input<'_>) -> Result<Option<Arc<str>>, Error> {
    match adapter.kind {
        Kind::Template => {
            let template = model.templates.choose(input.template, input.conversation.tools.is_some())?;
            Ok(Some(Arc::clone(&template.sha256)))
        }
        Kind::Family | Kind::Format => Ok(None),
    }
}

/// The parts of the prompt that spell a control token because the conversation does.
fn users_control_tokens(
    model: &Model,
    adapter: &Adapter,
    input: &Input<'_>,
    prompt: &str,
) -> Result<Vec<Range<usize>>, Error> {
    let again = |conversation: &Conversation, marks| {
        let _scope = TaintScope::start(Some(marks));
        let rendering = (adapter.render)(model, &Input { conversation, marks: Some(marks), ..*input })?;
        Ok(rendering.prompt)
    };
    model.control_tokens(adapter)?.users(prompt, input.conversation, adapter.kind, again)
}

fn generation_prompt(options: &RenderOptions) -> Result<bool, Invalid> {
    let wanted = options.add_generation_prompt.unwrap_or(!options.continue_final_message);
    if wanted && options.continue_final_message {
        let problem = "cannot be combined with continue_final_message: a turn is either continued or begun";
        return Err(Invalid::new("add_generation_prompt", problem));
    }
    Ok(wanted)
}

fn hf(model: Arc<Model>, choice: &Choice, job: RenderJob, start: Instant) -> Result<Rendered, Error> {
    let ignored = hf_warnings(&job);
    let prepared = prepare::for_hf(job.conversation, &job.options, choice, &model)?;
    let Prepared { conversation, mut warnings, origins } = prepared;
    warnings.extend(ignored);
    Ok(Rendered {
        output_spec: model.output_spec(&choice.adapter),
        model,
        output: Output::HfMessages(hf_messages(&conversation).map_err(|invalid| origins.invalid(invalid))?),
        resolution: hf_resolution(),
        warnings,
        template_sha256: None,
        render_time: start.elapsed(),
        tokenize_time: Duration::ZERO,
    })
}

/// HF messages are messages and nothing else.
fn hf_warnings(job: &RenderJob) -> Vec<Warning> {
    let RenderJob { conversation, options, return_token_ids, return_offsets, .. } = job;
    let codes = [WarningCode::ToolsIgnored, WarningCode::DocumentsIgnored, WarningCode::TemplateArgsIgnored];
    let given = [
        ("template", options.template.is_some()),
        ("continue_final_message", options.continue_final_message),
        ("control_tokens", options.control_tokens == ControlTokens::Literal),
        ("return", *return_token_ids || *return_offsets),
    ];
    let options = given.into_iter().filter(|(_, is_given)| *is_given);
    let options =
        options.map(|(option, _)| option_ignored(option, "the conversation has images, so no text is rendered"));
    adapters::ignored("HF messages", conversation, &codes).into_iter().chain(options).collect()
}

fn hf_resolution() -> Arc<Resolution> {
    let reason = "the conversation has images, so no text is rendered".to_owned();
    Arc::new(Resolution { adapter: "", reason, rejected: Vec::new() })
}

/// The adapter that renders for the model: the one that is pinned, else the model's own.
fn choose(model: &Model, registry: &Registry, pinned: Option<&str>) -> Result<Choice, Error> {
    match pinned {
        Some(name) => registry.pinned(name, model, "the request"),
        None => model.choice().cloned(),
    }
}

/// A pinned adapter renders, always.
fn becomes_hf_messages(choice: &Choice, conversation: &Conversation) -> bool {
    !choice.is_pinned && (choice.adapter.stops_at_images)(conversation)
}

/// Which adapter would render the conversation, and why.
///
/// # Errors
/// There is no adapter of the pinned name, or it cannot serve the model.
pub fn explain(
    model: &Model,
    registry: &Registry,
    pinned: Option<&str>,
    conversation: &Conversation,
) -> Result<Arc<Resolution>, Error> {
    let choice = choose(model, registry, pinned)?;
    Ok(if becomes_hf_messages(&choice, conversation) { hf_resolution() } else { choice.resolution })
}
