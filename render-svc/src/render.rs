//! The pipeline: check → resolve → render → tokenize → output spec. Pure: the same job gives the same answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tandem_common::digest::hex_sha256;
use tandem_common::template::LocalTime;

use crate::adapters::{self, Adapter, Attachment, Input, Resolution, Warning, WarningCode};
use crate::capabilities::{self, Capabilities, Change, Rewrite};
use crate::chat::{Content, Conversation, Invalid, blocks_to_text, content, kind};
use crate::error::Error;
use crate::hf_messages::hf_messages;
use crate::models::{Model, Models};
use crate::output_spec::OutputSpec;

/// What to render, and how.
#[derive(Debug, Clone)]
pub struct RenderJob {
    /// The model's id; empty for the only one.
    pub model: String,
    /// What is said.
    pub conversation: Conversation,
    /// How to render it.
    pub options: RenderOptions,
    /// Tokenize the prompt as well.
    pub return_token_ids: bool,
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
    pub resolution: Resolution,
    /// What the caller may not expect.
    pub warnings: Vec<Warning>,
    /// Lower-case hex; None for HF messages.
    pub prompt_sha256: Option<String>,
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
        /// Its ids, when asked for.
        token_ids: Option<Vec<u32>>,
    },
    /// Messages for a vision-language processor.
    HfMessages(Vec<Value>),
}

impl Rendered {
    /// How the model's answer is to be read.
    #[must_use]
    pub fn output_spec(&self) -> &OutputSpec {
        &self.model.output_spec
    }
}

/// Renders one job.
///
/// # Errors
/// [`Error`]; never a fall back to another adapter.
pub fn render(models: &Models, job: RenderJob) -> Result<Rendered, Error> {
    let model = Arc::clone(models.get(&job.model)?);
    job.conversation.check()?;
    let add_generation_prompt = generation_prompt(&job.options)?;
    let start = Instant::now();
    let (adapter, resolution) = choose(&model, &job.options)?;
    if job.options.adapter.is_none() && (adapter.stops_at_images)(&job.conversation) {
        return hf(model, &job.conversation, start);
    }
    let (conversation, mut warnings) = match adapter.is_family {
        true => (job.conversation, Vec::new()),
        false => {
            job.conversation.check_not_empty()?;
            normalize(job.conversation, job.options.normalization, model.capabilities)?
        }
    };
    let input = Input {
        conversation: &conversation,
        add_generation_prompt,
        continue_final_message: job.options.continue_final_message,
        now: job.options.now,
    };
    let rendering = (adapter.render)(&model, &input)?;
    warnings.extend(rendering.warnings);
    let render_time = start.elapsed();
    let start = Instant::now();
    let token_ids = tokenize(&model, &rendering.prompt, job.return_token_ids)?;
    Ok(Rendered {
        model,
        resolution,
        warnings,
        prompt_sha256: Some(hex_sha256(rendering.prompt.as_bytes())),
        output: Output::Prompt { text: rendering.prompt, attachments: rendering.attachments, token_ids },
        render_time,
        tokenize_time: start.elapsed(),
    })
}

fn generation_prompt(options: &RenderOptions) -> Result<bool, Invalid> {
    let wanted = options.add_generation_prompt.unwrap_or(!options.continue_final_message);
    if wanted && options.continue_final_message {
        let problem = "cannot be combined with continue_final_message: a turn is either continued or begun";
        return Err(Invalid::new("add_generation_prompt", problem));
    }
    Ok(wanted)
}

fn hf(model: Arc<Model>, conversation: &Conversation, start: Instant) -> Result<Rendered, Error> {
    let reason = "the conversation has images, so no text is rendered".to_owned();
    Ok(Rendered {
        model,
        output: Output::HfMessages(hf_messages(conversation)?),
        resolution: Resolution { adapter: "", reason, rejected: Vec::new() },
        warnings: Vec::new(),
        prompt_sha256: None,
        render_time: start.elapsed(),
        tokenize_time: Duration::ZERO,
    })
}

fn choose(model: &Model, options: &RenderOptions) -> Result<(Adapter, Resolution), Error> {
    match &options.adapter {
        Some(name) => adapters::pinned(name, model),
        None => adapters::resolve(model),
    }
}

fn normalize(
    mut conversation: Conversation,
    policy: Normalization,
    capabilities: Capabilities,
) -> Result<(Conversation, Vec<Warning>), Invalid> {
    if policy == Normalization::None {
        return Ok((conversation, Vec::new()));
    }
    for (i, message) in conversation.messages.iter_mut().enumerate() {
        join_text_blocks(message).map_err(|e| e.within(&format!("messages[{i}]")))?;
    }
    let (conversation, rewrites) = capabilities::normalize(conversation, capabilities);
    Ok((conversation, rewrites.iter().map(rewrite_warning).collect()))
}

fn rewrite_warning(rewrite: &Rewrite) -> Warning {
    let code = match rewrite.change {
        Change::Merged => WarningCode::MessagesMerged,
        Change::SystemToUser => WarningCode::SystemRewritten,
    };
    Warning { code, path: rewrite.path(), text: rewrite.to_string() }
}

fn join_text_blocks(message: &mut Value) -> Result<(), Invalid> {
    let joined = match content(message) {
        Content::Blocks(blocks) if blocks.iter().all(|block| kind(block) == Some("text")) => blocks_to_text(blocks)?,
        _ => return Ok(()),
    };
    message["content"] = Value::String(joined);
    Ok(())
}

fn tokenize(model: &Model, prompt: &str, wanted: bool) -> Result<Option<Vec<u32>>, Error> {
    match wanted {
        true => Ok(Some(model.tokenizer()?.encode(prompt, false)?)),
        false => Ok(None),
    }
}
