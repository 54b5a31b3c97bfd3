//! The pipeline: check → resolve → prepare → render → tokenize. The same job always gives the same
//! output.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use serde_json::Value;
use tandem_common::field::{Path, Step};
use tandem_common::telemetry::Span;
use tandem_model_files::digest::hex_sha256;
use tandem_model_files::tokenizer::{AffixPolicy, CancelScope, EncodeOptions, Encoding, TokenizerError};
use tandem_template::literal::{self, Parts, TaintedParts};
use tandem_template::taint::TaintScope;
use tandem_template::{LocalTime, RenderError, StepsPool};

use crate::adapter::{AdapterOutput, Attachment, Input, Kind};
use crate::catalog::{ModelTable, Resolution};
use crate::checks::Checked;
use crate::conversation::{Conversation, Object};
use crate::error::Error;
use crate::fault::{self, Fault};
use crate::job::{ControlTokenPolicy, Normalization, RenderJob, RenderOptions, ReturnTokenIds};
use crate::limits::Limits;
use crate::lost;
use crate::model::Model;
use crate::output_spec::OutputSpec;
use crate::prepare::origins::Origins;
use crate::prepare::place::Place;
use crate::prepare::refit::{self, Refitted};
use crate::prepare::{self, Prepared, hf_messages, hf_warnings};
use crate::probes::{ArgumentsShape, TemplateFacts};
use crate::resolve::{HF_REASON, OutputForm, ResolvedRender};
use crate::warning::{self, Warning, option_ignored};

/// A rendered conversation.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The model that it was rendered for.
    pub model: Arc<Model>,
    /// The input of the model.
    pub output: Output,
    /// The adapter that rendered it, and the reason.
    pub resolution: Arc<Resolution>,
    /// Warnings about the request.
    pub warnings: Vec<Warning>,
    /// SHA-256 of the chat template, in lower-case hex. None if the adapter renders without one.
    pub template_sha256: Option<Arc<str>>,
    /// How the model's output is read.
    pub output_spec: Arc<OutputSpec>,
    /// Time spent in the adapter.
    pub render_time: Duration,
    /// Time spent in the tokenizer.
    pub tokenize_time: Duration,
}

/// The input of a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Text.
    Prompt {
        /// The exact prompt.
        text: String,
        /// The media for the markers in it, in the order of the markers.
        attachments: Vec<Attachment>,
        /// Its token ids and their offsets, if requested.
        tokens: Option<Encoding>,
    },
    /// Messages for a vision-language processor.
    HfMessages(Box<HfMessages>),
}

/// Messages for a vision-language processor, and the other inputs of the model's chat template.
#[derive(Debug, Clone, PartialEq)]
pub struct HfMessages {
    pub messages: Vec<Value>,
    /// The tools, if any.
    pub tools: Option<Value>,
    /// The documents, if any.
    pub documents: Option<Value>,
    /// Arguments for the template.
    pub template_args: Object,
    /// True if the prompt ends with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// True if the prompt ends inside the content of the last message.
    pub continue_final_message: bool,
    /// The time that the template sees.
    pub now: LocalTime,
    /// The meaning of text that spells a control token.
    pub control_tokens: ControlTokenPolicy,
    /// The messages of the request that these were made from.
    pub origins: Origins,
}

impl Rendered {
    /// Returns the prompt; empty for HF messages.
    #[must_use]
    pub fn prompt(&self) -> &str {
        match &self.output {
            Output::Prompt { text, .. } => text,
            Output::HfMessages(_) => "",
        }
    }

    /// Returns the SHA-256 of the prompt in lower-case hex; None for HF messages.
    #[must_use]
    pub fn prompt_sha256(&self) -> Option<String> {
        match &self.output {
            Output::Prompt { text, .. } => Some(hex_sha256(text.as_bytes())),
            Output::HfMessages(_) => None,
        }
    }
}

/// Renders one job. Ends early once the thread's [`CancelScope`] is cancelled.
///
/// # Errors
/// [`Error`]. There is no fallback to another adapter.
pub fn render(models: &ModelTable, mut job: RenderJob, limits: &Limits) -> Result<Rendered, Error> {
    let served = models.get_for(&job.model, job.options.adapter.as_deref())?;
    let checked = Checked::new(&job.conversation, limits)?;
    let start = Instant::now();
    let resolved = ResolvedRender::new(served, &mut job, &checked.images)?;
    let requested: HashSet<String> = job.conversation.template_args.keys().cloned().collect();
    let job = with_toggles(job, &resolved);
    let mut rendered = match resolved.form {
        OutputForm::Prompt(_) => render_prompt(&resolved, job, &checked, limits, start),
        OutputForm::HfMessages => render_hf_messages(&resolved, job, &checked, limits, start),
    }?;
    // The caller sent no configured argument, and cannot change it.
    let is_configured = |name: &str| resolved.model.toggles.contains_key(name) && !requested.contains(name);
    rendered.warnings.retain(|warning| match warning.path.steps()[..] {
        [Step::Key("template_args"), Step::Key(name), ..] => !is_configured(name),
        _ => true,
    });
    Ok(rendered)
}

/// Adds the configured arguments that the request does not set. A format reads none.
fn with_toggles(mut job: RenderJob, resolved: &ResolvedRender<'_>) -> RenderJob {
    let args = &mut job.conversation.template_args;
    let switches = resolved.adapter().switches;
    let is_switched = switches.iter().any(|switch| args.contains_key(*switch));
    for (name, value) in resolved.model.toggles.iter().filter(|_| resolved.adapter().kind != Kind::Format) {
        let is_set = is_switched && switches.contains(&name.as_str());
        if !is_set && !args.contains_key(name) {
            args.insert(name.clone(), value.clone());
        }
    }
    job
}

fn render_prompt(
    resolved: &ResolvedRender<'_>,
    job: RenderJob,
    checked: &Checked,
    limits: &Limits,
    start: Instant,
) -> Result<Rendered, Error> {
    let RenderJob { conversation, options, token_ids, return_offsets, omit_media, .. } = job;
    let unused = unused_capabilities(resolved, &options);
    let mut prepared = prepare::for_prompt(conversation, checked, &options, resolved, limits)?;
    CancelScope::check()?;
    let empty = Conversation::default();
    let continued = options.continued_field();
    let input = Input {
        conversation: &empty,
        add_generation_prompt: resolved.add_generation_prompt,
        continue_final_message: continued.map(|field| resolved.continued_key(field, &prepared.conversation)),
        template: resolved.template(),
        is_normalized: options.normalization == Normalization::Capability,
        now: options.now,
        limits: *limits,
        taint: None,
    };
    let output = adapted(resolved, &options, &input, &mut prepared)?;
    let Prepared { conversation, mut warnings, origins } = prepared;
    let AdapterOutput { prompt: text, attachments, warnings: more } = output;
    let mut attachments: Vec<_> = attachments.into_iter().map(|attachment| origins.attachment(attachment)).collect();
    if omit_media {
        attachments.iter_mut().for_each(Attachment::omit_data);
    }
    if text.len() as u64 > limits.max_prompt_bytes {
        return Err(Error::PromptTooLarge { limit: limits.max_prompt_bytes, found: text.len() });
    }
    let known = more.clone();
    warnings.extend(warning::lost_keys_of_blocks(&checked.keys_of_blocks, &conversation.messages));
    warnings.extend(more.into_iter().flat_map(|warning| origins.warnings(warning)));
    warnings.extend(unused);
    if resolved.adapter().kind != Kind::Template {
        let given = Input { conversation: &conversation, ..input };
        let lost = lost_by_adapter(resolved, &given, &text, &known);
        warnings.extend(lost.into_iter().flat_map(|warning| origins.warnings(warning)));
    }
    let render_time = start.elapsed();
    let start = Instant::now();
    let literal = match options.control_tokens {
        ControlTokenPolicy::Tokens => None,
        ControlTokenPolicy::Literal => {
            Some(users_control_tokens(resolved, &Input { conversation: &conversation, ..input }, &text)?)
        }
    };
    let is_tokenized = return_offsets || literal.is_some() || are_returned(token_ids, resolved);
    let tokens = is_tokenized.then(|| tokenize(resolved, &text, &literal.unwrap_or_default(), return_offsets));
    Ok(Rendered {
        model: Arc::clone(resolved.model),
        output: Output::Prompt { text, attachments, tokens: tokens.transpose()? },
        resolution: resolved.resolution(),
        warnings: warning::bounded(warnings),
        template_sha256: resolved.template().map(|template| Arc::clone(&template.sha256)),
        output_spec: resolved.adapter.format.output_spec(),
        render_time,
        tokenize_time: start.elapsed(),
    })
}

/// Renders a prepared conversation, and changes it where the template shows more of another one.
///
/// # Errors
/// The adapter's, with the request's paths and the part for which it fails.
fn adapted(
    resolved: &ResolvedRender<'_>,
    options: &RenderOptions,
    input: &Input<'_>,
    prepared: &mut Prepared,
) -> Result<AdapterOutput, Error> {
    let Prepared { conversation, warnings, origins } = prepared;
    let given = Input { conversation, ..*input };
    let output = run_adapter(resolved, &given);
    if let Some((refitted, better)) = refitted(resolved, options, &given, origins, &output) {
        warnings.extend(refitted.rewrites.iter().map(prepare::rewrite_warning));
        (*conversation, origins.messages) = (refitted.conversation, refitted.places);
        return Ok(better);
    }
    output.map_err(|error| {
        let (conversation, error) = with_arguments(resolved, options, input, conversation.clone(), error);
        located(resolved, &Input { conversation: &conversation, ..*input }, origins, error)
    })
}

/// Returns the conversation with arguments of the type that the template wants, and the error that it then has:
/// the first one may be about arguments that are no fault.
fn with_arguments(
    resolved: &ResolvedRender<'_>,
    options: &RenderOptions,
    input: &Input<'_>,
    conversation: Conversation,
    error: Error,
) -> (Conversation, Error) {
    let is_converted = is_refitted(resolved, options) && matches!(error, Error::Template(RenderError::Runtime { .. }));
    let places = vec![Place::at(Path::default()); conversation.messages.len()];
    let refitted = if is_converted { argument_change(input)(&conversation, &places, None) } else { None };
    let Some(Refitted { conversation: converted, .. }) = refitted else { return (conversation, error) };
    match run_adapter(resolved, &Input { conversation: &converted, ..*input }) {
        Err(error) => (converted, error),
        Ok(_) => (conversation, error),
    }
}

fn are_returned(token_ids: ReturnTokenIds, resolved: &ResolvedRender<'_>) -> bool {
    match token_ids {
        ReturnTokenIds::No => false,
        ReturnTokenIds::IfTextIsNotEnough => {
            resolved.adapter().leaves_bos_to_tokenizer && resolved.model.tokenizer.is_ok()
        }
        ReturnTokenIds::Yes => true,
    }
}

/// A change of a conversation with these places and this output, if any.
type Change = fn(&Conversation, &[Place], Option<&AdapterOutput>) -> Option<Refitted>;

/// Returns the change of arguments to the type that the template wants.
fn argument_change(input: &Input<'_>) -> Change {
    match input.template.map(|named| named.facts.tools.arguments) {
        Some(ArgumentsShape::Text) => Refitted::with_text_arguments,
        _ => Refitted::with_object_arguments,
    }
}

/// Returns true if a conversation may change so that the template shows it.
fn is_refitted(resolved: &ResolvedRender<'_>, options: &RenderOptions) -> bool {
    let is_given = options.capabilities.is_some() || resolved.model.has_configured_capabilities();
    options.normalization == Normalization::Capability && !is_given && resolved.adapter().kind == Kind::Template
}

/// Returns the conversation with other forms of content or merged messages, and its output, if the
/// template fails for the conversation or shows less of it. Capabilities of the request or the
/// configuration decide instead.
fn refitted(
    resolved: &ResolvedRender<'_>,
    options: &RenderOptions,
    input: &Input<'_>,
    origins: &Origins,
    output: &Result<AdapterOutput, Error>,
) -> Option<(Refitted, AdapterOutput)> {
    let given = match output {
        _ if !is_refitted(resolved, options) => return None,
        Ok(output) => Some(output),
        Err(Error::Template(RenderError::Limit { .. } | RenderError::Cancelled)) => return None,
        Err(Error::Template(_)) => None,
        Err(_) => return None,
    };
    let _pool = StepsPool::start(input.limits.max_template_steps);
    let attempt = |refitted: Refitted| {
        let again = run_adapter(resolved, &Input { conversation: &refitted.conversation, ..*input }).ok();
        let better = again.filter(|again| is_better(&refitted, again, input.conversation, given));
        (refitted, better)
    };
    let merges = |base: &Refitted| {
        [&["user"][..], &["assistant"], &["user", "assistant"]].iter().find_map(|roles| {
            let (refitted, better) =
                attempt(base.then(Refitted::merged(&base.conversation, &base.places, given, roles)?));
            Some((refitted, better?))
        })
    };
    if given.is_some_and(|output| refit::faults(input.conversation, output) == 0) {
        return None;
    }
    let mut base = Refitted::unchanged(input.conversation, &origins.messages);
    let changes: [Change; 4] = [Refitted::filled, argument_change(input), Refitted::with_forms, Refitted::with_users];
    for (number, change) in changes.into_iter().enumerate() {
        // Messages stay the system's where merging is enough.
        if number + 1 == changes.len()
            && let Some(found) = merges(&base)
        {
            return Some(found);
        }
        let Some(next) = change(&base.conversation, &base.places, given) else { continue };
        match attempt(base.then(next)) {
            (next, Some(better)) => return Some((next, better)),
            // A conversation for which the template fails may need several changes.
            (next, None) if given.is_none() => base = next,
            (_, None) => {}
        }
    }
    if base.rewrites.is_empty() { None } else { merges(&base) }
}

/// Returns true if an output shows more than the one of the conversation as it was given, if any.
fn is_better(
    refitted: &Refitted,
    output: &AdapterOutput,
    conversation: &Conversation,
    given: Option<&AdapterOutput>,
) -> bool {
    let faults = refit::faults(&refitted.conversation, output);
    given.is_none_or(|given| faults < refit::faults(conversation, given))
}

/// Returns an error with the request's paths. The error of a template names the part for which it fails.
fn located(resolved: &ResolvedRender<'_>, input: &Input<'_>, origins: &Origins, error: Error) -> Error {
    let is_found = matches!(error, Error::Template(RenderError::Runtime { .. } | RenderError::Raised { .. }));
    let fails = |conversation: &Conversation| run_adapter(resolved, &Input { conversation, ..*input }).is_err();
    let _pool = StepsPool::start(input.limits.max_template_steps);
    let fault = if is_found { fault::find(input.conversation, fails) } else { Fault::default() };
    let field = fault.field.map(|field| origins.path(&field));
    let empty = fault.empty_messages.iter().map(|message| origins.path(message)).collect();
    origins.error(error).at_fault(field, empty)
}

fn run_adapter(resolved: &ResolvedRender<'_>, input: &Input<'_>) -> Result<AdapterOutput, Error> {
    let (model, adapter) = (resolved.model, resolved.adapter());
    let attributes =
        || [KeyValue::new("tandem.model", model.id.clone()), KeyValue::new("tandem.adapter", adapter.name)];
    Span::current().part("render", attributes).in_scope(|| (adapter.render)(model, input))
}

/// Warns of each part that a family's encoder or a format leaves out, such as reasoning before the last
/// question. A result without its call has a warning of the adapter.
fn lost_by_adapter(resolved: &ResolvedRender<'_>, input: &Input<'_>, prompt: &str, known: &[Warning]) -> Vec<Warning> {
    let (model, adapter) = (resolved.model, resolved.adapter());
    let name = match adapter.kind {
        Kind::Family => "the model's encoder".to_owned(),
        Kind::Template | Kind::Format => format!("the {} format", adapter.name),
    };
    let again = |conversation: &Conversation| {
        let output = (adapter.render)(model, &Input { conversation, ..*input });
        output.ok().map(|output| output.prompt)
    };
    let mut warnings = lost::warnings(input.conversation, &TemplateFacts::default(), prompt, &name, again);
    warnings.retain(|lost| !known.iter().any(|known| known.path.starts_with(&lost.path) || known.is_about(&lost.path)));
    warnings
}

/// Returns the bytes of the prompt that spell a control token because the conversation does.
fn users_control_tokens(
    resolved: &ResolvedRender<'_>,
    input: &Input<'_>,
    prompt: &str,
) -> Result<Vec<Range<usize>>, Error> {
    let adapter = resolved.adapter();
    let Conversation { messages, tools, documents, template_args } = input.conversation;
    let parts = Parts { messages, tools: tools.as_ref(), documents: documents.as_ref(), template_args };
    let again = |tainted| {
        let TaintedParts { taint, messages, tools, documents, template_args } = tainted;
        let conversation = &Conversation { messages, tools, documents, template_args };
        CancelScope::check()?;
        let _scope = TaintScope::start(Some(taint));
        let output = (adapter.render)(resolved.model, &Input { conversation, taint: Some(taint), ..*input })?;
        Ok(output.prompt)
    };
    let is_final = |error: &Error| match error {
        Error::Template(error) => literal::is_final(error),
        error => matches!(error, Error::Tokenizer(TokenizerError::Cancelled)),
    };
    let finder = resolved.adapter.format.control_tokens()?;
    finder.of_caller(prompt, parts, &adapter.known_names, again, is_final)
}

fn tokenize(
    resolved: &ResolvedRender<'_>,
    text: &str,
    literal: &[Range<usize>],
    offsets: bool,
) -> Result<Encoding, Error> {
    let affixes = if resolved.adapter().leaves_bos_to_tokenizer { AffixPolicy::Leading } else { AffixPolicy::None };
    let options = EncodeOptions { affixes, literal, offsets };
    let encode = || Ok(resolved.model.tokenizer()?.encode_with(text, &options)?);
    Span::current().part("tokenize", || []).in_scope(encode)
}

fn render_hf_messages(
    resolved: &ResolvedRender<'_>,
    job: RenderJob,
    checked: &Checked,
    limits: &Limits,
    start: Instant,
) -> Result<Rendered, Error> {
    let mut ignored = ignored_by_hf(&job);
    ignored.extend(unused_capabilities(resolved, &job.options));
    let RenderOptions { now, control_tokens, .. } = job.options;
    let continue_final_message = job.options.continued_field().is_some();
    let mut prepared = prepare::for_hf(job.conversation, checked, &job.options, resolved, limits)?;
    prepared.warnings.extend(ignored);
    CancelScope::check()?;
    let mapped = hf_messages::hf_messages(&prepared.conversation);
    prepared.conversation.messages = mapped.map_err(|invalid| prepared.origins.invalid(invalid))?;
    let data = hf_messages::take_data(&mut prepared.conversation.messages);
    if resolved.adapter().kind == Kind::Template {
        fit_hf_messages(resolved, &job.options, limits, &mut prepared)?;
    }
    let Prepared { mut conversation, warnings, origins } = prepared;
    if job.omit_media {
        hf_messages::omit_data(&mut conversation.messages, &origins);
    } else {
        hf_messages::put_data(&mut conversation.messages, data);
    }
    Ok(Rendered {
        model: Arc::clone(resolved.model),
        output: Output::HfMessages(Box::new(HfMessages {
            messages: conversation.messages,
            tools: conversation.tools,
            documents: conversation.documents,
            template_args: conversation.template_args,
            add_generation_prompt: resolved.add_generation_prompt,
            continue_final_message,
            now,
            control_tokens,
            origins,
        })),
        resolution: resolved.resolution(),
        warnings: warning::bounded(warnings),
        template_sha256: None,
        output_spec: resolved.adapter.format.output_spec(),
        render_time: start.elapsed(),
        tokenize_time: Duration::ZERO,
    })
}

/// Renders mapped messages with the model's template: changes them as it needs, and warns of each part that
/// the prompt lacks.
///
/// # Errors
/// The template refuses the messages.
fn fit_hf_messages(
    resolved: &ResolvedRender<'_>,
    options: &RenderOptions,
    limits: &Limits,
    prepared: &mut Prepared,
) -> Result<(), Error> {
    let empty = Conversation::default();
    let input = Input {
        conversation: &empty,
        add_generation_prompt: resolved.add_generation_prompt,
        continue_final_message: options.continued_field(),
        template: None,
        is_normalized: options.normalization == Normalization::Capability,
        now: options.now,
        limits: *limits,
        taint: None,
    };
    let Prepared { conversation, warnings, origins } = prepared;
    let given = Input { conversation, ..input };
    let mut output = run_adapter(resolved, &given);
    // A list that the template prints stays a list, since the model's processor may read it.
    let refitted = output.is_err().then(|| refitted(resolved, options, &given, origins, &output));
    if let Some((refitted, better)) = refitted.flatten() {
        output = Ok(better);
        warnings.extend(refitted.rewrites.iter().map(prepare::rewrite_warning));
        (*conversation, origins.messages) = (refitted.conversation, refitted.places);
    }
    match output {
        Ok(output) => {
            let lost = hf_warnings::of_output(resolved, &Input { conversation, ..input }, output);
            warnings.extend(lost.into_iter().flat_map(|warning| origins.warnings(warning)));
            Ok(())
        }
        Err(Error::Template(RenderError::Runtime { .. })) if !resolved.model.takes_images => Ok(()),
        Err(error @ Error::Template(RenderError::Raised { .. } | RenderError::Runtime { .. })) => {
            Err(located(resolved, &Input { conversation, ..input }, origins, error))
        }
        Err(error @ Error::Template(RenderError::Cancelled)) => Err(error),
        // Without its template, a model may still read the messages.
        Err(_) => Ok(()),
    }
}

/// Warns of capabilities of the request for an encoder of a family, which takes none.
fn unused_capabilities(resolved: &ResolvedRender<'_>, options: &RenderOptions) -> Option<Warning> {
    let adapter = resolved.adapter();
    if adapter.kind != Kind::Family {
        return None;
    }
    let why = format!("the {} adapter renders messages of every capability", adapter.name);
    options.capabilities.is_some().then(|| option_ignored("capabilities", &why))
}

/// Warns of every part of the request that has no place in HF messages.
fn ignored_by_hf(job: &RenderJob) -> Vec<Warning> {
    let RenderJob { options, token_ids, return_offsets, is_task, .. } = job;
    let given = [
        ("template", options.template.is_some()),
        ("return_token_ids", *token_ids == ReturnTokenIds::Yes && !is_task),
        ("return_offsets", *return_offsets && !is_task),
    ];
    let options = given.into_iter().filter(|(_, is_given)| *is_given);
    options.map(|(option, _)| option_ignored(option, HF_REASON)).collect()
}
