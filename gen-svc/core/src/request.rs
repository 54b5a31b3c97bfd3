//! A request: the caller's options, and the prepared request, checked against the model and
//! completed with defaults.

use std::sync::Arc;

use tandem_common::admission::Permit;
use tandem_common::field::Path;

use crate::cache::Content;
use crate::error::RequestError;
use crate::grammar::{Compiled, Grammar};
use crate::media::{Marked, MediaFile, PromptMedia};
use crate::output::extract::Rules;
use crate::output::{OutputPipeline, TextSegment, TokenOutput, push_segment};
use crate::sampling::Sampling;
use crate::sampling::parameters::Range;
use validate::{check, check_between, check_count, check_ids};

mod input;
mod limits;
mod model;
mod output_spec;
mod reasoning;
mod stop;
mod validate;

pub use crate::sampling::SamplingOptions;
pub use input::Input;
use input::TokenizedPrompt;
pub use limits::Limits;
pub use model::ServedModel;
pub use output_spec::{OutputSpec, SpecialTokenClass};
pub use reasoning::{ReasoningRule, Stage};
pub use stop::StopOptions;

const MAX_OUTPUTS: u32 = 16;
const MAX_BIASED_TOKENS: usize = 1024;
const MAX_LOGPROBS: u32 = 20;
const MAX_SALT_BYTES: usize = 1024;
/// Bytes of a text, and ids of a prompt or of classes, that are prepared in a fraction of a
/// millisecond.
const MAX_SHORT_TEXT_BYTES: usize = 4 << 10;
const MAX_SHORT_TOKEN_IDS: usize = 4 << 10;
/// Bytes of all stop strings in the request, and in the output spec.
const MAX_SHORT_STOP_BYTES: usize = 1 << 10;
/// Ids that end an output.
const MAX_SHORT_END_IDS: usize = 64;
/// The size of a prompt in bytes from which it takes long to prepare.
const LONG_BYTES: usize = 64 << 10;

/// Returns true if an input of this size takes long to prepare.
pub fn is_long(bytes: usize) -> bool {
    bytes >= LONG_BYTES
}

/// A generation request, as the caller states it.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// The model's id. Empty: the served model.
    pub model: String,
    /// The prompt.
    pub input: Input,
    /// The sampling parameters.
    pub sampling: SamplingOptions,
    /// The end conditions.
    pub stop: StopOptions,
    /// How to read the output.
    pub output_spec: OutputSpec,
    /// The data to return besides text.
    pub returns: Returns,
    /// The grammar of the output. `None`: any output.
    pub grammar: Option<Grammar>,
    /// True if a start marker of reasoning, which is one token, may come before the grammar.
    pub after_reasoning: bool,
    /// The SHA-256 of the caller's tokenizer, in lower-case hex.
    pub expected_tokenizer_sha256: Option<String>,
    /// A request with a higher priority runs first.
    pub priority: i32,
    /// Cached blocks are reused only between requests with the same salt.
    pub cache_salt: String,
    /// The caller. Callers get equal shares of the engine.
    pub caller: Arc<str>,
    /// Set to resume an output.
    pub resume: Option<Resume>,
}

/// An output to resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// The number of generated ids: at the end of the input, or in `token_ids`.
    pub generated_tokens: u32,
    pub output_index: u32,
    /// The generated ids, for messages.
    pub token_ids: Vec<u32>,
}

/// The work that a grammar takes before its request is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrammarWork {
    /// It is compiled, or follows the tokens of a resumed output.
    Usual,
    /// It is compiled, which may take long.
    Costly,
}

/// The data to return besides text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Returns {
    /// Token ids with each delta.
    pub token_ids: bool,
    /// The log probability of each token, and this many of the most likely tokens.
    pub logprobs: Option<u32>,
    /// The same for each token of the prompt.
    pub prompt_logprobs: Option<u32>,
    /// The bytes of each delta's text.
    pub bytes: bool,
    /// The text of each output after the extraction rules.
    pub extracted_text: bool,
}

/// A request with every value checked and every default filled in.
#[derive(Debug)]
pub struct PreparedRequest {
    /// The prompt and the generated ids: at least one, each in the vocabulary, fewer than the
    /// context.
    pub ids: Arc<Vec<u32>>,
    /// The images of the prompt.
    pub media: Option<PromptMedia>,
    /// The number of ids that belong to the prompt.
    pub prompt_tokens: usize,
    /// The index of the first output.
    pub first_output: u32,
    /// The text that was delivered before the request was resumed.
    pub delivered: Vec<TextSegment>,
    /// The sampling parameters.
    pub sampling: Sampling,
    /// The end conditions.
    pub limits: Limits,
    /// The grammar of the outputs.
    pub grammar: Option<Compiled>,
    /// The generated tokens that the grammar binds: the last ones.
    pub bound: usize,
    /// Whether the grammar binds the next token.
    pub stage: Stage,
    /// The tokens that end reasoning, or may start it before the grammar.
    pub reasoning: ReasoningRule,
    /// The pipeline from ids to text.
    pub output: OutputPipeline,
    /// The rules of the extracted text, if the request asks for it.
    pub extraction: Option<Rules>,
    /// The data to return besides text.
    pub returns: Returns,
    /// A request with a higher priority runs first.
    pub priority: i32,
    /// Cached blocks are reused only between requests with the same salt.
    pub cache_salt: Arc<str>,
    pub caller: Arc<str>,
    /// The memory of its images is counted until it is dropped.
    pub(crate) _image_memory: Option<Permit>,
}

impl GenerateRequest {
    /// Creates a request with defaults for all options.
    #[must_use]
    pub fn new(input: Input) -> Self {
        Self {
            model: String::new(),
            input,
            sampling: SamplingOptions::default(),
            stop: StopOptions::default(),
            output_spec: OutputSpec::default(),
            returns: Returns::default(),
            grammar: None,
            after_reasoning: false,
            expected_tokenizer_sha256: None,
            priority: 0,
            cache_salt: String::new(),
            caller: Arc::default(),
            resume: None,
        }
    }

    /// Checks all values against the model, tokenizes the prompt and fills in defaults. The time is
    /// proportional to the length of the prompt.
    ///
    /// # Errors
    /// The first value that is not acceptable.
    pub fn prepare(self, model: &ServedModel) -> Result<PreparedRequest, RequestError> {
        model.check_id(&self.model)?;
        check_sampling(&self.sampling, model.vocabulary_size)?;
        self.stop.check(model.vocabulary_size)?;
        self.returns.check()?;
        let salt = self.cache_salt.len();
        check(salt <= MAX_SALT_BYTES, "cache_salt", || {
            format!("must have at most {MAX_SALT_BYTES} bytes, has {salt}")
        })?;
        let before = self.check_resume()?;
        let field = self.input.field();
        let TokenizedPrompt { mut ids, media } =
            self.input.tokenize(model, self.expected_tokenizer_sha256.as_deref())?;
        let generated = self.resume.as_ref().map_or(&[][..], |resume| &resume.token_ids);
        check_ids("resume.token_ids", generated, model.vocabulary_size)?;
        ids.extend(generated);
        if ids.len() >= model.context_length {
            return Err(RequestError::PromptTooLong { field, tokens: ids.len(), context: model.context_length });
        }
        check(before < ids.len(), "resume.generated_tokens", || {
            format!("must be fewer than all {}, are {before}", ids.len())
        })?;
        let (tokens, limit) = (ids.len() - before, model.max_prompt_tokens);
        if tokens > limit {
            return Err(RequestError::PromptOverLimit { field, tokens, limit });
        }
        self.output_spec.check(model.vocabulary_size)?;
        let spec = self.output_spec.completed(model);
        self.stop.check_with(self.grammar.as_ref())?;
        let grammar = self.grammar.map(|grammar| model.grammars.compile(&grammar)).transpose()?;
        let mut limits = self.stop.resolve_defaults(&spec, model, model.context_length - ids.len() + before);
        check(before < limits.max_new_tokens, "resume.generated_tokens", || {
            format!("must be fewer than max_new_tokens, {}, are {before}", limits.max_new_tokens)
        })?;
        let reserve = |media| model.vision.as_ref().map(|vision| vision.reserve(media, &self.caller));
        let image_memory = media.as_ref().and_then(reserve).transpose()?;
        let extraction = self.returns.extracted_text.then(|| spec.extraction.clone());
        let (markers, eos) = (&spec.reasoning, &spec.eos_token_ids);
        let reasoning = ReasoningRule::new(&model.tokenizer, markers, self.after_reasoning, eos, model.vocabulary_size);
        let spec = spec.resolve(&limits);
        let (prompt, generated) = ids.split_at(ids.len() - before);
        let mut output = OutputPipeline::new(model.tokenizer.clone(), &spec, prompt);
        let stage = reasoning.first_stage(grammar.is_some(), output.is_reasoning());
        limits.limit_reasoning(stage);
        let Replayed { delivered, stage, bound } = replay(&mut output, stage, generated)?;
        Ok(PreparedRequest {
            sampling: self.sampling.resolve_defaults(&model.defaults),
            delivered,
            output,
            extraction,
            bound: if grammar.is_some() && stage == Stage::Bound { bound.len() } else { 0 },
            grammar: grammar.map(|grammar| model.grammars.resume(grammar, bound)).transpose()?,
            stage,
            reasoning,
            limits,
            prompt_tokens: prompt.len(),
            first_output: self.resume.as_ref().map_or(0, |resume| resume.output_index),
            ids: Arc::new(ids),
            media,
            _image_memory: image_memory,
            returns: self.returns,
            priority: self.priority,
            cache_salt: self.cache_salt.into(),
            caller: self.caller,
        })
    }

    /// Fetches images at URLs, if the service's settings allow it. Blocks.
    ///
    /// # Errors
    /// An image cannot be fetched, or the images are over a limit.
    pub fn fetch_images(&mut self, model: &ServedModel) -> Result<(), RequestError> {
        model.vision.as_ref().map_or(Ok(()), |vision| vision.fetch_images(self.input.urls()))
    }

    /// Returns true if the prompt takes long to prepare.
    #[must_use]
    pub fn has_long_prompt(&self) -> bool {
        is_long(self.prompt_bytes())
    }

    /// Returns the work that the grammar takes in the preparation. None: no grammar, or no work.
    #[must_use]
    pub fn grammar_work(&self, model: &ServedModel) -> Option<GrammarWork> {
        let grammar = self.grammar.as_ref()?;
        if model.grammars.is_compiled(grammar) {
            return self.resume.is_some().then_some(GrammarWork::Usual);
        }
        Some(if grammar.kind.may_be_costly() { GrammarWork::Costly } else { GrammarWork::Usual })
    }

    fn prompt_bytes(&self) -> usize {
        match &self.input {
            Input::Text(text) => text.len(),
            Input::TokenIds(ids) => size_of_val(ids.as_slice()),
            Input::WithMedia(prompt, files) => prompt.size() + files.iter().map(MediaFile::size).sum::<usize>(),
            Input::HfMessages(messages) => messages.size(),
        }
    }

    /// Returns true if preparing the request takes about as long as sending it to another thread.
    #[must_use]
    pub fn is_short(&self) -> bool {
        let is_short_prompt = match &self.input {
            Input::Text(text) => text.len() <= MAX_SHORT_TEXT_BYTES,
            Input::TokenIds(ids) => ids.len() <= MAX_SHORT_TOKEN_IDS,
            Input::WithMedia(..) | Input::HfMessages(_) => false,
        };
        let has_little_to_end = |strings: &[String], ids: &[u32]| {
            strings.iter().map(String::len).sum::<usize>() <= MAX_SHORT_STOP_BYTES && ids.len() <= MAX_SHORT_END_IDS
        };
        is_short_prompt
            && self.grammar.is_none()
            && self.resume.is_none()
            && has_little_to_end(&self.stop.stop_strings, &self.stop.stop_token_ids)
            && has_little_to_end(&self.output_spec.stop_strings, &self.output_spec.eos_token_ids)
            && self.output_spec.special_ids() <= MAX_SHORT_TOKEN_IDS
    }

    /// Returns the number of ids in the input that were generated.
    fn check_resume(&self) -> Result<usize, RequestError> {
        let Some(Resume { generated_tokens, output_index, token_ids }) = &self.resume else { return Ok(0) };
        let (generated_tokens, output_index) = (*generated_tokens, *output_index);
        let expected = match &self.input {
            Input::TokenIds(_) | Input::WithMedia(Marked::TokenIds(_), _) => 0,
            Input::HfMessages(_) => generated_tokens as usize,
            _ => {
                return Err(RequestError::invalid(
                    "resume",
                    "must be set together with token_ids or hf_messages_json only",
                ));
            }
        };
        check(token_ids.len() == expected, "resume.token_ids", || {
            format!("must have {expected} ids with this input, has {}", token_ids.len())
        })?;
        check(self.sampling.n.unwrap_or(1) == 1, "sampling.n", || "must be 1 where an output is resumed".into())?;
        check_between("resume.output_index", output_index, 0, MAX_OUTPUTS - 1)?;
        check(generated_tokens > 0, "resume.generated_tokens", || "must be at least 1, is 0".into())?;
        Ok(generated_tokens as usize)
    }
}

impl PreparedRequest {
    /// Returns the ids of the prompt.
    #[must_use]
    pub fn prompt(&self) -> &[u32] {
        &self.ids[..self.prompt_tokens]
    }

    /// Returns true if the tokens that may come next can depend on those before.
    #[must_use]
    pub fn is_guided(&self) -> bool {
        self.grammar.is_some() || self.limits.max_reasoning_tokens.is_some()
    }

    /// Returns the number of the prompt's tokens of images.
    #[must_use]
    pub fn image_tokens(&self) -> usize {
        self.media.as_ref().map_or(0, PromptMedia::tokens)
    }

    /// Returns the content of the prompt and the tokens after it, for the prefix cache. `is_long`: of a long
    /// sequence.
    #[must_use]
    pub fn content<'a>(&'a self, tokens: &'a [u32], is_long: bool) -> Content<'a> {
        let images = self.media.as_ref().map_or(&[][..], |media| &media.spans);
        Content { salt: &self.cache_salt, is_long, tokens, images }
    }

    /// Returns the ids that were generated before the request was resumed.
    #[must_use]
    pub fn generated(&self) -> &[u32] {
        &self.ids[self.prompt_tokens..]
    }
}

impl Returns {
    fn check(&self) -> Result<(), RequestError> {
        check_between("return_options.logprobs", self.logprobs.unwrap_or(0), 0, MAX_LOGPROBS)?;
        check_between("return_options.prompt_logprobs", self.prompt_logprobs.unwrap_or(0), 0, MAX_LOGPROBS)
    }
}

/// Returns the text of a resumed output that was already delivered.
fn replay<'a>(
    output: &mut OutputPipeline,
    mut stage: Stage,
    generated: &'a [u32],
) -> Result<Replayed<'a>, RequestError> {
    let (mut delivered, mut bound) = (Vec::new(), generated);
    for (place, &id) in generated.iter().enumerate() {
        let TokenOutput { segments, stopped } = output.push(id);
        check(stopped.is_none(), "resume.generated_tokens", || "must not be an output that has ended".into())?;
        segments.into_iter().for_each(|segment| push_segment(&mut delivered, segment));
        let after = stage.after(output.is_reasoning());
        if [std::mem::replace(&mut stage, after), after].contains(&Stage::Waiting) {
            bound = &generated[place + 1..];
        }
    }
    Ok(Replayed { delivered, stage, bound })
}

/// The tokens of a resumed output.
struct Replayed<'a> {
    delivered: Vec<TextSegment>,
    stage: Stage,
    /// The last ones, which the grammar binds.
    bound: &'a [u32],
}

fn check_sampling(sampling: &SamplingOptions, vocabulary: usize) -> Result<(), RequestError> {
    sampling.check_ranges()?;
    check_between("sampling.n", sampling.n.unwrap_or(1), 1, MAX_OUTPUTS)?;
    let field = "sampling.logit_bias";
    check_count(field, sampling.logit_bias.len(), MAX_BIASED_TOKENS)?;
    for &(id, bias) in &sampling.logit_bias {
        let entry = || Path::from(field).index(id as usize);
        check((id as usize) < vocabulary, entry(), || format!("must name a token below {vocabulary}"))?;
        Range::from_to(-100.0, 100.0).check(entry(), Some(bias))?;
    }
    Ok(())
}
