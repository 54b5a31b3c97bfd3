//! The conversation as an adapter gets it: normalized to the capabilities of the model's template,
//! and checked.

mod block_types;
mod calls;
pub mod forms;
pub mod hf_messages;
pub mod hf_warnings;
pub mod merge;
pub mod needs;
pub mod normalize;
pub mod null_content;
pub mod origins;
pub mod place;
pub mod policy;
pub mod reasoning_key;
pub mod refit;
pub mod rewrite;
pub mod tools;
pub mod traced;
pub mod typed_blocks;

use serde_json::Value;

use self::block_types::Probe;
use self::forms::{ContentForm, Forms};
use self::needs::Needs;
use self::normalize::Turns;
use self::origins::Origins;
use self::place::Place;
use self::policy::{Policy, Rewritten};
use self::rewrite::{Change, Rewrite};
use self::typed_blocks::{Conversion, TOOL_RESULT, TOOL_USE};
use crate::adapter::{Input, Kind};
use crate::catalog::ResolvedAdapter;
use crate::checks::{Checked, Images};
use crate::conversation::{Content, Conversation, blocks, content, kind};
use crate::error::Error;
use crate::job::{Normalization, RenderOptions};
use crate::limits::Limits;
use crate::model::{Model, NamedTemplate};
use crate::probes::Finding;
use crate::resolve::ResolvedRender;
use crate::warning::{Warning, WarningCode, option_ignored};

/// A conversation that is ready to be rendered.
#[derive(Debug)]
pub struct Prepared {
    pub conversation: Conversation,
    /// Warnings, with paths of the request.
    pub warnings: Vec<Warning>,
    /// The places in the request of rewritten parts.
    pub origins: Origins,
}

/// Prepares a conversation for the adapter that renders it as text.
///
/// # Errors
/// A message or block that the adapter cannot render, by path.
pub fn for_prompt(
    conversation: Conversation,
    checked: &Checked,
    options: &RenderOptions,
    resolved: &ResolvedRender<'_>,
    limits: &Limits,
) -> Result<Prepared, Error> {
    let adapter = resolved.adapter();
    let mut warnings: Vec<_> = guess_warning(&resolved.adapter).into_iter().collect();
    warnings.extend(difference_warning(&resolved.adapter));
    warnings.extend(image_warning(&resolved.adapter, &checked.images));
    warnings.extend_from_slice(&checked.without_content);
    let request =
        Request { options, resolved, checked, limits, template: resolved.template(), form: ContentForm::Text };
    let mut prepared = request.rewritten(conversation)?;
    if request.template.is_some() && request.is_normalized() {
        let checked = request.probe(&prepared.conversation).check();
        checked.map_err(|invalid| prepared.origins.invalid(invalid))?;
    }
    if options.template.is_some() && adapter.kind != Kind::Template {
        let why = format!("the {} adapter has no templates to choose from", adapter.name);
        warnings.push(option_ignored("template", &why));
    }
    prepared.warnings.splice(..0, warnings);
    Ok(prepared)
}

/// Prepares a conversation whose messages become HF messages.
///
/// # Errors
/// A message that cannot be normalized, by path.
pub fn for_hf(
    conversation: Conversation,
    checked: &Checked,
    options: &RenderOptions,
    resolved: &ResolvedRender<'_>,
    limits: &Limits,
) -> Result<Prepared, Error> {
    let mut warnings: Vec<_> = text_only_warning(resolved.model, &checked.images).into_iter().collect();
    warnings.extend_from_slice(&checked.without_content);
    let template = match resolved.adapter().kind {
        Kind::Template => resolved.model.templates.choose(None, conversation.tools.is_some()).ok(),
        Kind::Family | Kind::Format => None,
    };
    let request = Request { options, resolved, checked, limits, template, form: ContentForm::AsIs };
    let mut prepared = request.rewritten(conversation)?;
    prepared.warnings.splice(..0, warnings);
    Ok(prepared)
}

/// A request whose conversation is rewritten.
#[derive(Debug, Clone, Copy)]
struct Request<'a> {
    options: &'a RenderOptions,
    resolved: &'a ResolvedRender<'a>,
    checked: &'a Checked,
    limits: &'a Limits,
    /// The template that renders the messages, here or in the generation service.
    template: Option<&'a NamedTemplate>,
    /// The form of lists of text blocks: text in a prompt, as they are in HF messages.
    form: ContentForm,
}

impl Request<'_> {
    fn is_normalized(&self) -> bool {
        self.options.normalization == Normalization::Capability
    }

    fn is_prompt(&self) -> bool {
        self.form == ContentForm::Text
    }

    /// Rewrites the conversation as the policy requires. Under NONE, messages stay as they are.
    /// Adapters of families convert messages themselves, apart from the type of arguments.
    fn rewritten(&self, mut conversation: Conversation) -> Result<Prepared, Error> {
        let adapter = self.resolved.adapter();
        if let Some(wrong_calls) = self.checked.wrong_calls.as_ref().filter(|_| self.is_normalized()) {
            return Err(wrong_calls.clone().into());
        }
        let (tools, mut warnings) = self.rewrite_tools(&mut conversation);
        let is_family = adapter.kind == Kind::Family;
        if is_family && self.is_normalized() && self.is_prompt() {
            calls::convert_arguments(&mut conversation.messages, adapter.arguments);
        }
        if !self.is_normalized() || (is_family && self.is_prompt()) {
            let origins = Origins { messages: Vec::new(), tools };
            return Ok(Prepared { conversation, warnings, origins });
        }
        let policy = self.policy_in_context(&conversation);
        if policy.conversion.is_some_and(|conversion| conversion.results) {
            warnings.extend_from_slice(&self.checked.keys_of_results);
        }
        let messages = std::mem::take(&mut conversation.messages);
        let Rewritten { messages, places, rewrites } = policy.rewrite(messages)?;
        warnings.splice(..0, rewrites.iter().map(rewrite_warning));
        conversation.messages = messages;
        Ok(Prepared { conversation, warnings, origins: Origins { messages: places, tools } })
    }

    /// Rewrites the tools. Returns their places, and warnings.
    fn rewrite_tools(&self, conversation: &mut Conversation) -> (Vec<Place>, Vec<Warning>) {
        let kind = self.resolved.adapter().kind;
        let reads_input_schema = || kind == Kind::Template && self.resolved.model.templates.mention("input_schema");
        let is_rewritten = self.is_normalized() || kind == Kind::Family;
        let tools = conversation.tools.as_mut().filter(|_| is_rewritten && !reads_input_schema());
        let Some(tools) = tools else { return Default::default() };
        let places = tools::rewrite(tools);
        let warnings = tools::warnings(tools).collect();
        (places, warnings)
    }

    /// Returns the rewriting that the conversation needs. A template may take messages as they are only
    /// with tools, documents or an argument, which its probes lack.
    fn policy_in_context(&self, conversation: &Conversation) -> Policy {
        let needed = self.policy(conversation);
        let least = Policy { forms: Forms::default(), turns: Some(Turns::default()), ..needed };
        let is_given = self.options.capabilities.is_some() || self.resolved.model.has_configured_capabilities();
        let has_context =
            conversation.has_tools() || conversation.has_documents() || !conversation.template_args.is_empty();
        if is_given || !has_context || self.template.is_none() || needed == least {
            return needed;
        }
        let rewritten = |policy: Policy| Some(policy.rewrite(conversation.messages.clone()).ok()?.messages);
        let unchanged = rewritten(least).filter(|messages| rewritten(needed).is_some_and(|needed| needed != *messages));
        let is_shown = |messages| self.shows_all(&conversation.with_messages(messages));
        if unchanged.is_some_and(is_shown) { least } else { needed }
    }

    /// Returns true if the template shows each message of a conversation, and prints no list.
    fn shows_all(&self, conversation: &Conversation) -> bool {
        let Probe { adapter, model, input } = self.probe(conversation);
        let render = |conversation: &Conversation| (adapter.render)(model, &Input { conversation, ..input }).ok();
        let Some(output) = render(conversation) else { return false };
        let is_same = |changed: Conversation| render(&changed).is_some_and(|again| again.prompt == output.prompt);
        refit::faults(conversation, &output) == 0 && refit::with_further_keys(conversation).is_none_or(is_same)
    }

    /// Returns the rewriting that the model's template needs.
    fn policy(&self, conversation: &Conversation) -> Policy {
        let conversion = self.conversion(conversation);
        if self.resolved.adapter().kind == Kind::Family {
            return Policy { conversion, ..Policy::default() };
        }
        let facts = self.template.map(|named| &*named.facts);
        let needs = Needs::new(facts, self.options.capabilities, self.resolved.model);
        Policy {
            conversion,
            forms: needs.forms(self.form, conversation.has_tools()),
            turns: Some(needs.turns(&conversation.messages, conversation.has_tools())),
            reasoning_key: needs.reasoning_key(),
            null_content_fails: needs.null_content_fails(),
        }
    }

    /// Returns the typed blocks that are converted: all that the template does not show itself, and blocks
    /// whose words it shows only as calls or messages of the tool. The formats show them in a prompt.
    fn conversion(&self, conversation: &Conversation) -> Option<Conversion> {
        if self.is_prompt() && self.template.is_none() {
            return None;
        }
        let tools = self.template.map(|named| named.facts.tools).unwrap_or_default();
        let is_converted = |kind: &str, role: &str, converted: Finding| {
            let mut blocks =
                conversation.messages.iter().flat_map(blocks).filter(|block| self::kind(block) == Some(kind));
            let Some(first) = blocks.next() else { return false };
            let probe = self.probe(conversation);
            let is_text = |block: &Value| matches!(content(block), Content::Text(_));
            let mut other = || blocks.find(|block| is_text(block) != is_text(first));
            let is_shown = |block: &Value| probe.shows_words(block, role);
            let mut is_better = || converted == Finding::Shown && !(is_shown(first) && other().is_none_or(is_shown));
            self.template.is_none() || !probe.knows(first, role) || is_better()
        };
        Some(Conversion {
            calls: is_converted(TOOL_USE, "assistant", tools.calls),
            results: is_converted(TOOL_RESULT, "user", tools.results),
            arguments: tools.arguments,
        })
    }

    fn probe<'p>(&'p self, conversation: &'p Conversation) -> Probe<'p> {
        let input = Input {
            conversation,
            add_generation_prompt: self.resolved.add_generation_prompt,
            continue_final_message: None,
            template: self.template,
            is_normalized: self.is_normalized(),
            now: self.options.now,
            limits: *self.limits,
            taint: None,
        };
        Probe { adapter: self.resolved.adapter(), model: self.resolved.model, input }
    }
}

/// Returns the warning of a change to messages.
#[must_use]
pub fn rewrite_warning(rewrite: &Rewrite) -> Warning {
    let code = match rewrite.change {
        Change::Merged | Change::SystemMerged | Change::MergedToShow => WarningCode::MessagesMerged,
        Change::SystemToUser => WarningCode::SystemRewritten,
    };
    Warning::new(code, rewrite.path(), rewrite.to_string())
}

/// Warns of a format that was selected although nothing identifies the model's own.
fn guess_warning(choice: &ResolvedAdapter) -> Option<Warning> {
    let (reason, name) = (&choice.resolution.reason, choice.adapter().name);
    let text = || format!("{reason}: rendered as {name}; pin an adapter to confirm");
    choice.is_guess.then(|| Warning::new(WarningCode::FormatGuessed, "model", text()))
}

/// Warns of a chat template of the model that differs from the prompts of its family's encoder.
fn difference_warning(choice: &ResolvedAdapter) -> Option<Warning> {
    let difference = choice.difference.as_deref()?;
    let text = format!(
        "{difference}: rendered by {}; pin tokenizer-template for the template, or this adapter to confirm",
        choice.adapter().name
    );
    Some(Warning::new(WarningCode::TemplateDiffers, "model", text))
}

/// Warns of images whose data a pinned adapter does not put into the prompt. Families reject or
/// attach images themselves.
fn image_warning(choice: &ResolvedAdapter, images: &Images) -> Option<Warning> {
    let path = images.first.clone().filter(|_| choice.adapter().kind != Kind::Family)?;
    let text = format!(
        "images whose data is not in the prompt: {}; adapter {:?}, {}, renders text only",
        images.count,
        choice.adapter().name,
        choice.resolution.reason
    );
    Some(Warning::new(WarningCode::ImagesIgnored, path, text))
}

/// Warns of images for a model that takes none.
fn text_only_warning(model: &Model, images: &Images) -> Option<Warning> {
    let path = images.first.clone().filter(|_| !model.takes_images)?;
    let text = format!("model {:?} takes text only: its files have no image processor", model.id);
    Some(Warning::new(WarningCode::ImagesNotSupported, path, text))
}
