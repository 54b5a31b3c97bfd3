//! A request: as the caller states it, and as it will run once checked against the model and completed with its defaults.

use std::fmt::Display;
use std::sync::Arc;

use tandem_common::random::random_u64;
use tandem_model_files::artifacts::GenerationDefaults;
use tandem_model_files::tokenizer::{Tokenizer, TokenizerError};

use crate::error::Error;
use crate::grammar::{Compiled, Grammar, Grammars};
use crate::output::extract::Rules;
use crate::output::reasoning::{MarkerSet, Markers};
use crate::output::{OutputPipeline, Part, Spec, Step, add_part};
use crate::sampling::Sampling;

const MAX_STOP_STRINGS: usize = 64;
const MAX_STOP_STRING_BYTES: usize = 1024;
const MAX_STOP_TOKEN_IDS: usize = 1024;
const MAX_MARKERS: usize = 16;
const MAX_MARKER_BYTES: usize = 64;
const MAX_SPECIAL: usize = 16 * 1024;
const MAX_OUTPUTS: u32 = 16;
const MAX_BIASED: usize = 1024;
const MAX_LOGPROBS: u32 = 20;
const MAX_SALT_BYTES: usize = 1024;
/// Bytes of a text, and ids, of the prompt or of classes, that are prepared in a fraction of a millisecond.
const SHORT_TEXT: usize = 4 << 10;
const SHORT_IDS: usize = 4 << 10;
/// Bytes of stop strings together, each of the request's and of the output spec's.
const SHORT_STOPS: usize = 1 << 10;
/// Ids that end an output.
const SHORT_ENDS: usize = 64;

/// What to continue, and how, as the caller states it.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// The model's id. Empty means the one there is.
    pub model: String,
    /// The prompt.
    pub input: Input,
    /// How to choose tokens.
    pub sampling: SamplingOptions,
    /// When to stop.
    pub stop: StopOptions,
    /// How to read the output.
    pub output_spec: OutputSpec,
    /// What to return besides text.
    pub returns: Returns,
    /// What the output must be. None: anything.
    pub grammar: Option<Grammar>,
    /// The tokenizer that the caller used, as lower-case hex SHA-256.
    pub expected_tokenizer_sha256: Option<String>,
    /// Higher goes first.
    pub priority: i32,
    /// Only what was computed for requests of the same salt is reused.
    pub cache_salt: String,
    /// Set to go on with an output that was begun before.
    pub resume: Option<Resume>,
}

/// An output that was begun before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// How many of the last ids of the input are its own.
    pub generated_tokens: u32,
    /// Which output it is.
    pub output_index: u32,
}

/// A prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Tokenized as it stands: control tokens in it count, none are added.
    Text(String),
    /// The tokens themselves.
    TokenIds(Vec<u32>),
    /// For models that see, of which there is none yet.
    HfMessages,
}

/// What to return besides text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Returns {
    /// Token ids with each delta.
    pub token_ids: bool,
    /// How likely each token was, and the so many likeliest in its place.
    pub logprobs: Option<u32>,
    /// The same for each token of the prompt.
    pub prompt_logprobs: Option<u32>,
    /// The bytes of each delta's text.
    pub bytes: bool,
    /// What the extraction rules leave of each output.
    pub extracted_text: bool,
}

/// Sampling as far as it is stated. What is not comes from the model's defaults.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)] // as in `Sampling`
pub struct SamplingOptions {
    pub temperature: Option<f32>,
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub typical_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub logit_bias: Vec<(u32, f32)>,
    pub n: Option<u32>,
    pub seed: Option<u64>,
}

/// Limits as far as they are stated.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StopOptions {
    /// None: what is left of the context.
    pub max_new_tokens: Option<u32>,
    /// Before so many tokens, none is chosen that would end the output.
    pub min_new_tokens: u32,
    /// Output ends before the first of these.
    pub stop_strings: Vec<String>,
    /// Output ends at the first of these.
    pub stop_token_ids: Vec<u32>,
    /// Go on past eos.
    pub ignore_eos: bool,
    /// What of these ends the output is the last of its text.
    pub include_stop: bool,
}

/// How the output is to be read. By default the model's own eos ids end it, and special tokens leave no text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSpec {
    /// Ids that end the model's turn, and never show. Empty: the model's own eos ids.
    pub eos_token_ids: Vec<u32>,
    /// Strings that end the model's turn.
    pub stop_strings: Vec<String>,
    /// What becomes of special tokens.
    pub special_token_classes: Vec<SpecialTokenClass>,
    /// What encloses reasoning.
    pub reasoning: Markers,
    /// What to leave out of the whole.
    pub extraction: Rules,
}

/// Special tokens that are treated alike.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokenClass {
    /// The tokens.
    pub token_ids: Vec<u32>,
    /// Whether they are text. If not, they leave none. Tokens in classes of both kinds are text.
    pub passes: bool,
}

/// The model, as requests see it.
#[derive(Debug)]
pub struct ServedModel {
    /// What requests call it.
    pub id: String,
    /// Such as `llama`.
    pub architecture: String,
    /// Tokens, prompt and output together.
    pub context_length: usize,
    /// Tokens of the prompt alone.
    pub max_prompt_tokens: usize,
    /// Ids are below this.
    pub vocabulary_size: usize,
    /// Such as `f32`.
    pub dtype: String,
    /// Such as `none`.
    pub quantization: String,
    /// Such as `cpu`.
    pub device: String,
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// The ids that end a turn.
    pub eos_token_ids: Vec<u32>,
    /// What its makers recommend.
    pub defaults: SamplingOptions,
    /// What makes its outputs follow grammars.
    pub grammars: Grammars,
}

/// A request with every value checked and every default filled in.
#[derive(Debug)]
pub struct PreparedRequest {
    /// The prompt, and what was generated before. At least one, each in the vocabulary, fewer than the context.
    pub ids: Arc<Vec<u32>>,
    /// How many of the ids are the prompt's.
    pub prompt_tokens: usize,
    /// The first of the outputs.
    pub first_output: u32,
    /// Text that was delivered before the request was resumed.
    pub delivered: Vec<Part>,
    /// How to choose tokens.
    pub sampling: Sampling,
    /// When to stop.
    pub limits: Limits,
    /// What the outputs must follow.
    pub grammar: Option<Compiled>,
    /// Ids to text.
    pub output: OutputPipeline,
    /// What to leave out of an output's whole text, if that is asked for.
    pub extraction: Option<Rules>,
    /// What to return besides text.
    pub returns: Returns,
    /// Higher goes first.
    pub priority: i32,
    /// Only what was computed for requests of the same salt is reused.
    pub cache_salt: Arc<str>,
}

/// When an output stops, every value settled.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// At least 1, at most what is left of the context.
    pub max_new_tokens: usize,
    /// Before so many tokens, none is chosen that would end the output.
    pub min_new_tokens: usize,
    /// The request's, then the output spec's.
    pub stop_strings: Vec<String>,
    /// The request's, then the eos ids unless they are ignored.
    pub stop_token_ids: Vec<u32>,
    /// Whether eos ids are ignored.
    pub ignore_eos: bool,
    /// Whether what of the request's ends an output shows.
    pub include_stop: bool,
}

impl GenerateRequest {
    /// Continues `input` with every default.
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
            expected_tokenizer_sha256: None,
            priority: 0,
            cache_salt: String::new(),
            resume: None,
        }
    }

    /// Checks everything against the model, tokenizes, and fills in defaults. Takes time in proportion to the prompt.
    ///
    /// # Errors
    /// The first thing that is not acceptable.
    pub fn prepare(self, model: &ServedModel) -> Result<PreparedRequest, Error> {
        model.check_id(&self.model)?;
        self.sampling.check(model.vocabulary_size)?;
        self.stop.check(model.vocabulary_size)?;
        self.returns.check()?;
        let salt = self.cache_salt.len();
        check(salt <= MAX_SALT_BYTES, "cache_salt", || {
            format!("must have at most {MAX_SALT_BYTES} bytes, has {salt}")
        })?;
        let before = self.check_resume()?;
        let field = self.input.field();
        let ids = self.input.tokenize(model, self.expected_tokenizer_sha256.as_deref())?;
        check(before < ids.len(), "resume.generated_tokens", || {
            format!("must be fewer than all {}, are {before}", ids.len())
        })?;
        let (tokens, limit) = (ids.len() - before, model.max_prompt_tokens);
        if tokens > limit {
            return Err(Error::PromptOverLimit { field, tokens, limit });
        }
        self.output_spec.check(model.vocabulary_size)?;
        let spec = self.output_spec.completed(model);
        self.stop.check_with(self.grammar.as_ref())?;
        let grammar = self.grammar.map(|grammar| model.grammars.compile(&grammar)).transpose()?;
        let limits = self.stop.resolve_defaults(&spec, model.context_length - ids.len() + before);
        check(before < limits.max_new_tokens, "resume.generated_tokens", || {
            format!("must be fewer than max_new_tokens, {}, are {before}", limits.max_new_tokens)
        })?;
        let extraction = self.returns.extracted_text.then(|| spec.extraction.clone());
        let spec = spec.resolve(&limits);
        let (prompt, generated) = ids.split_at(ids.len() - before);
        let mut output = OutputPipeline::new(model.tokenizer.clone(), &spec, prompt);
        Ok(PreparedRequest {
            sampling: self.sampling.resolve_defaults(&model.defaults),
            delivered: replay(&mut output, generated)?,
            output,
            extraction,
            grammar: grammar.map(|grammar| model.grammars.resume(grammar, generated)).transpose()?,
            limits,
            prompt_tokens: prompt.len(),
            first_output: self.resume.map_or(0, |resume| resume.output_index),
            ids: Arc::new(ids),
            returns: self.returns,
            priority: self.priority,
            cache_salt: self.cache_salt.into(),
        })
    }

    /// Whether to prepare it takes about as long as to hand it to another thread.
    #[must_use]
    pub fn is_short(&self) -> bool {
        let is_short_prompt = match &self.input {
            Input::Text(text) => text.len() <= SHORT_TEXT,
            Input::TokenIds(ids) => ids.len() <= SHORT_IDS,
            Input::HfMessages => true,
        };
        let has_little_to_end = |strings: &[String], ids: &[u32]| {
            strings.iter().map(String::len).sum::<usize>() <= SHORT_STOPS && ids.len() <= SHORT_ENDS
        };
        is_short_prompt
            && self.grammar.is_none()
            && self.resume.is_none()
            && has_little_to_end(&self.stop.stop_strings, &self.stop.stop_token_ids)
            && has_little_to_end(&self.output_spec.stop_strings, &self.output_spec.eos_token_ids)
            && self.output_spec.special_ids() <= SHORT_IDS
    }

    /// How many of the input's ids were generated before.
    fn check_resume(&self) -> Result<usize, Error> {
        let Some(Resume { generated_tokens, output_index }) = self.resume else { return Ok(0) };
        let has_ids = matches!(self.input, Input::TokenIds(_));
        check(has_ids, "resume", || "must be set together with token_ids only".into())?;
        check(self.sampling.n.unwrap_or(1) == 1, "sampling.n", || "must be 1 where an output is resumed".into())?;
        check_between("resume.output_index", output_index, 0, MAX_OUTPUTS - 1)?;
        check(generated_tokens > 0, "resume.generated_tokens", || "must be at least 1, is 0".into())?;
        Ok(generated_tokens as usize)
    }
}

/// What an output has told already.
fn replay(output: &mut OutputPipeline, generated: &[u32]) -> Result<Vec<Part>, Error> {
    let mut told = Vec::new();
    for &id in generated {
        let Step { parts, stopped } = output.push(id);
        check(stopped.is_none(), "resume.generated_tokens", || "must not be an output that has ended".into())?;
        parts.into_iter().for_each(|part| add_part(&mut told, part));
    }
    Ok(told)
}

impl PreparedRequest {
    /// The prompt alone.
    #[must_use]
    pub fn prompt(&self) -> &[u32] {
        &self.ids[..self.prompt_tokens]
    }

    /// What was generated before.
    #[must_use]
    pub fn generated(&self) -> &[u32] {
        &self.ids[self.prompt_tokens..]
    }
}

impl ServedModel {
    /// Whether requests that name `id` are for this model.
    ///
    /// # Errors
    /// They are not.
    pub fn check_id(&self, id: &str) -> Result<(), Error> {
        if id.is_empty() || id == self.id {
            return Ok(());
        }
        Err(Error::ModelNotFound { asked: id.to_owned(), served: self.id.clone() })
    }
}

impl Input {
    /// The path of this input in the request.
    fn field(&self) -> &'static str {
        match self {
            Self::Text(_) => "prompt",
            Self::TokenIds(_) => "token_ids.ids",
            Self::HfMessages => "hf_messages_json",
        }
    }

    fn tokenize(self, model: &ServedModel, expected: Option<&str>) -> Result<Vec<u32>, Error> {
        check_tokenizer(model, expected)?;
        let field = self.field();
        let ids = match self {
            Self::Text(text) => model.tokenizer.encode(&text, false).map_err(|error| match error {
                TokenizerError::TooLong { .. } => Error::invalid(field, error.to_string()),
                other => Error::Tokenize(other),
            })?,
            Self::TokenIds(ids) => ids,
            Self::HfMessages => return Err(Error::ImagesNotSupported { model: model.id.clone() }),
        };
        check(!ids.is_empty(), field, || "must not be empty".into())?;
        check_ids(field, &ids, model.vocabulary_size)?;
        if ids.len() >= model.context_length {
            return Err(Error::PromptTooLong { field, tokens: ids.len(), context: model.context_length });
        }
        Ok(ids)
    }
}

impl SamplingOptions {
    /// The model's recommendations, as far as they are acceptable.
    #[must_use]
    pub fn recommended(defaults: &GenerationDefaults) -> Self {
        let greedy = defaults.do_sample == Some(false);
        let stated = Self {
            temperature: if greedy { Some(0.0) } else { defaults.temperature },
            top_k: defaults.top_k,
            top_p: defaults.top_p,
            min_p: defaults.min_p,
            typical_p: defaults.typical_p,
            repetition_penalty: defaults.repetition_penalty,
            ..Self::default()
        };
        match stated.check(0) {
            Ok(()) => stated,
            Err(error) => {
                tracing::warn!(error = error.chain(), "the model's generation defaults are ignored");
                Self::default()
            }
        }
    }

    fn check(&self, vocabulary: usize) -> Result<(), Error> {
        let positive = |penalty: f32| penalty > 0.0 && penalty <= 100.0;
        let share = |p: f32| p > 0.0 && p <= 1.0;
        check_range("sampling.temperature", self.temperature, |t| (0.0..=100.0).contains(&t), "0 to 100")?;
        check_range("sampling.top_p", self.top_p, share, "above 0 and at most 1")?;
        check_range("sampling.min_p", self.min_p, |p| (0.0..=1.0).contains(&p), "0 to 1")?;
        check_range("sampling.typical_p", self.typical_p, share, "above 0 and at most 1")?;
        let repetition = self.repetition_penalty;
        check_range("sampling.repetition_penalty", repetition, positive, "above 0 and at most 100")?;
        let additive = |penalty: f32| (-2.0..=2.0).contains(&penalty);
        check_range("sampling.presence_penalty", self.presence_penalty, additive, "-2 to 2")?;
        check_range("sampling.frequency_penalty", self.frequency_penalty, additive, "-2 to 2")?;
        check_between("sampling.n", self.n.unwrap_or(1), 1, MAX_OUTPUTS)?;
        self.check_bias(vocabulary)
    }

    fn check_bias(&self, vocabulary: usize) -> Result<(), Error> {
        let field = "sampling.logit_bias";
        check_count(field, self.logit_bias.len(), MAX_BIASED)?;
        for &(id, bias) in &self.logit_bias {
            let entry = format!("{field}[{id}]");
            check((id as usize) < vocabulary, &entry, || format!("must name a token below {vocabulary}"))?;
            check_range(&entry, Some(bias), |bias| (-100.0..=100.0).contains(&bias), "-100 to 100")?;
        }
        Ok(())
    }

    fn resolve_defaults(self, model: &Self) -> Sampling {
        Sampling {
            temperature: self.temperature.or(model.temperature).unwrap_or(1.0),
            top_k: self.top_k.or(model.top_k).unwrap_or(0),
            top_p: self.top_p.or(model.top_p).unwrap_or(1.0),
            min_p: self.min_p.or(model.min_p).unwrap_or(0.0),
            typical_p: self.typical_p.or(model.typical_p).unwrap_or(1.0),
            repetition_penalty: self.repetition_penalty.or(model.repetition_penalty).unwrap_or(1.0),
            presence_penalty: self.presence_penalty.unwrap_or(0.0),
            frequency_penalty: self.frequency_penalty.unwrap_or(0.0),
            logit_bias: self.logit_bias,
            n: self.n.unwrap_or(1),
            seed: self.seed.unwrap_or_else(random_u64),
        }
    }
}

impl Returns {
    fn check(&self) -> Result<(), Error> {
        check_between("return_options.logprobs", self.logprobs.unwrap_or(0), 0, MAX_LOGPROBS)?;
        check_between("return_options.prompt_logprobs", self.prompt_logprobs.unwrap_or(0), 0, MAX_LOGPROBS)
    }
}

impl StopOptions {
    fn check(&self, vocabulary: usize) -> Result<(), Error> {
        check(self.max_new_tokens != Some(0), "stop.max_new_tokens", || "must be at least 1, is 0".into())?;
        let (least, most) = (self.min_new_tokens, self.max_new_tokens.unwrap_or(u32::MAX));
        check(least <= most, "stop.min_new_tokens", || format!("must be at most max_new_tokens, {most}, is {least}"))?;
        check_strings("stop.stop_strings", &self.stop_strings, STOP_STRINGS)?;
        check_count("stop.stop_token_ids", self.stop_token_ids.len(), MAX_STOP_TOKEN_IDS)?;
        check_ids("stop.stop_token_ids", &self.stop_token_ids, vocabulary)
    }

    /// A grammar says itself when an output may end, and must.
    fn check_with(&self, grammar: Option<&Grammar>) -> Result<(), Error> {
        let free = || "must not be set together with a grammar".to_owned();
        check(grammar.is_none() || self.min_new_tokens == 0, "stop.min_new_tokens", free)?;
        check(grammar.is_none() || !self.ignore_eos, "stop.ignore_eos", free)
    }

    fn resolve_defaults(self, spec: &OutputSpec, left: usize) -> Limits {
        let mut limits = Limits {
            min_new_tokens: self.min_new_tokens as usize,
            max_new_tokens: self.max_new_tokens.map_or(left, |most| left.min(most as usize)),
            stop_strings: self.stop_strings,
            stop_token_ids: self.stop_token_ids,
            ignore_eos: self.ignore_eos,
            include_stop: self.include_stop,
        };
        add_new(&mut limits.stop_strings, &spec.stop_strings);
        if !limits.ignore_eos {
            add_new(&mut limits.stop_token_ids, &spec.eos_token_ids);
        }
        limits
    }
}

impl OutputSpec {
    fn check(&self, vocabulary: usize) -> Result<(), Error> {
        let Self { eos_token_ids, stop_strings, special_token_classes, reasoning, extraction } = self;
        check_count("output_spec.eos_token_ids", eos_token_ids.len(), MAX_STOP_TOKEN_IDS)?;
        check_ids("output_spec.eos_token_ids", eos_token_ids, vocabulary)?;
        check_strings("output_spec.stop_strings", stop_strings, STOP_STRINGS)?;
        let ids = self.special_ids();
        check(ids <= MAX_SPECIAL, "output_spec.special_token_classes", || {
            format!("must have at most {MAX_SPECIAL} token ids in all, has {ids}")
        })?;
        for (i, SpecialTokenClass { token_ids, passes: _ }) in special_token_classes.iter().enumerate() {
            check_ids(format_args!("output_spec.special_token_classes[{i}].token_ids"), token_ids, vocabulary)?;
        }
        check_markers(reasoning, vocabulary)?;
        let Rules { strip_reasoning: _, cut_head, strip_lines } = extraction;
        let bytes = cut_head.len();
        check(bytes <= MAX_STOP_STRING_BYTES, "output_spec.extraction.cut_head", || {
            format!("must have at most {MAX_STOP_STRING_BYTES} bytes, has {bytes}")
        })?;
        check_strings("output_spec.extraction.strip_lines", strip_lines, STOP_STRINGS)
    }

    /// With the model's own eos ids, if the request has none.
    fn completed(mut self, model: &ServedModel) -> Self {
        if self.eos_token_ids.is_empty() {
            self.eos_token_ids.clone_from(&model.eos_token_ids);
        }
        self
    }

    /// Returns how many ids the classes of special tokens have.
    fn special_ids(&self) -> usize {
        self.special_token_classes.iter().map(|class| class.token_ids.len()).sum()
    }

    /// What ends the model's turn leaves no text: not its strings, nor eos ids, even where those do not end the output.
    fn resolve(self, limits: &Limits) -> Spec {
        let Self { eos_token_ids, special_token_classes, reasoning, .. } = self;
        let is_shown = |string: &String| limits.include_stop && !self.stop_strings.contains(string);
        let (shown, hidden): (Vec<_>, Vec<_>) = limits.stop_strings.iter().cloned().partition(is_shown);
        let (mut dropped, mut passed) = (Vec::new(), Vec::new());
        for SpecialTokenClass { token_ids, passes } in special_token_classes {
            if passes { passed.extend(token_ids) } else { dropped.extend(token_ids) }
        }
        if limits.include_stop {
            passed.extend(&limits.stop_token_ids);
        }
        passed.retain(|id| !eos_token_ids.contains(id));
        dropped.extend(&eos_token_ids);
        Spec {
            end_token_ids: limits.stop_token_ids.clone(),
            shown_stop_strings: shown.len(),
            stop_strings: [shown, hidden].concat(),
            control_token_ids: eos_token_ids,
            dropped,
            passed,
            reasoning,
        }
    }
}

fn add_new<T: Clone + PartialEq>(list: &mut Vec<T>, more: &[T]) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

fn check(acceptable: bool, field: &str, problem: impl FnOnce() -> String) -> Result<(), Error> {
    if acceptable { Ok(()) } else { Err(Error::invalid(field, problem())) }
}

// NaN is in no range.
fn check_range(field: &str, value: Option<f32>, allowed: impl Fn(f32) -> bool, range: &str) -> Result<(), Error> {
    match value {
        Some(value) => check(allowed(value), field, || format!("must be {range}, is {value}")),
        None => Ok(()),
    }
}

fn check_between(field: &str, value: u32, least: u32, most: u32) -> Result<(), Error> {
    check((least..=most).contains(&value), field, || format!("must be {least} to {most}, is {value}"))
}

fn check_count(field: &str, count: usize, most: usize) -> Result<(), Error> {
    check(count <= most, field, || format!("must be at most {most}, are {count}"))
}

fn check_ids(field: impl Display, ids: &[u32], vocabulary: usize) -> Result<(), Error> {
    match ids.iter().position(|&id| id as usize >= vocabulary) {
        None => Ok(()),
        Some(i) => {
            let problem = format!("must be below the vocabulary size {vocabulary}, is {}", ids[i]);
            Err(Error::invalid(format!("{field}[{i}]"), problem))
        }
    }
}

/// How many strings a list may have, and how many bytes each.
#[derive(Clone, Copy)]
struct MostStrings {
    count: usize,
    bytes: usize,
}

const STOP_STRINGS: MostStrings = MostStrings { count: MAX_STOP_STRINGS, bytes: MAX_STOP_STRING_BYTES };
const MARKERS: MostStrings = MostStrings { count: MAX_MARKERS, bytes: MAX_MARKER_BYTES };

fn check_strings(field: &str, strings: &[String], most: MostStrings) -> Result<(), Error> {
    check_count(field, strings.len(), most.count)?;
    for (i, string) in strings.iter().enumerate() {
        let (bytes, most) = (string.len(), most.bytes);
        check((1..=most).contains(&bytes), &format!("{field}[{i}]"), || {
            format!("must have 1 to {most} bytes, has {bytes}")
        })?;
    }
    Ok(())
}

fn check_markers(markers: &Markers, vocabulary: usize) -> Result<(), Error> {
    let Markers { start, end } = markers;
    for (kind, MarkerSet { token_ids, strings }) in [("start", start), ("end", end)] {
        let field = format!("output_spec.reasoning.{kind}_token_ids");
        check_count(&field, token_ids.len(), MAX_MARKERS)?;
        check_ids(&field, token_ids, vocabulary)?;
        check_strings(&format!("output_spec.reasoning.{kind}_strings"), strings, MARKERS)?;
    }
    check_no_start("token_ids", &start.token_ids, &end.token_ids)?;
    check_no_start("strings", &start.strings, &end.strings)
}

/// Fails if an end of reasoning is a start as well.
fn check_no_start<T: PartialEq>(list: &str, starts: &[T], ends: &[T]) -> Result<(), Error> {
    match ends.iter().position(|end| starts.contains(end)) {
        None => Ok(()),
        Some(i) => {
            let field = format!("output_spec.reasoning.end_{list}[{i}]");
            Err(Error::invalid(field, format!("must not be one of start_{list} as well")))
        }
    }
}

fn check_tokenizer(model: &ServedModel, expected: Option<&str>) -> Result<(), Error> {
    let found = model.tokenizer.sha256();
    match expected {
        Some(expected) if expected != found => {
            Err(Error::TokenizerMismatch { expected: expected.to_owned(), found: found.to_owned() })
        }
        _ => Ok(()),
    }
}
