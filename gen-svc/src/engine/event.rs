//! What a request's caller is told, in order: `Accepted`, any number of `Delta`, `Finished` for each output, `Summary`; or `Refused`
//! alone.

use std::time::Duration;

use crate::error::Error;
use crate::output::{Matched, Part};
use crate::request::Limits;
use crate::sampling::Sampling;

/// One event of a request.
#[derive(Debug)]
pub enum Event {
    /// It will never run. The only event then.
    Refused(Error),
    /// It runs. The first event then.
    Accepted(Accepted),
    /// How likely the next tokens of the prompt were, if that was asked for. All come before the first delta of an output.
    PromptLogprobs(Vec<Token>),
    /// More output.
    Delta(Delta),
    /// The end of an output.
    Finished(Finished),
    /// The end of the request, and the last event.
    Summary(Summary),
}

/// The request as it runs.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// Every parameter after defaults.
    pub sampling: Sampling,
    /// Every limit after defaults.
    pub limits: Limits,
    /// Tokens in the prompt.
    pub prompt_tokens: usize,
    /// Those of them that were computed for an earlier request.
    pub cached_tokens: usize,
    /// Time spent in the queue.
    pub queue: Duration,
}

/// More output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// Which output; 0 is the first.
    pub output: u32,
    /// At least one, in order. The last may be empty; then it says whether what comes next is reasoning. The bytes are empty unless
    /// they were asked for.
    pub parts: Vec<Part>,
    /// The tokens sampled since the last delta, if they were asked for.
    pub token_ids: Vec<u32>,
    /// The same with how likely they were, if that was asked for.
    pub tokens: Vec<Token>,
}

/// A token and how likely it was, by the model itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// The token.
    pub id: u32,
    /// What it stands for: not always whole characters.
    pub bytes: Vec<u8>,
    /// The natural logarithm of its probability.
    pub logprob: f32,
    /// The likeliest in its place, the likeliest first.
    pub top: Vec<TopToken>,
}

/// One of the likeliest tokens in a place.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // as in `Token`
pub struct TopToken {
    pub id: u32,
    pub bytes: Vec<u8>,
    pub logprob: f32,
}

/// How an output ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// What was still held back, and the last token. It names the output.
    pub last: Delta,
    /// Why.
    pub reason: FinishReason,
    /// What stopped it, when the reason is `Stop`.
    pub matched: Option<Matched>,
    /// What the extraction rules leave of its text, if that was asked for.
    pub extracted_text: Option<String>,
}

/// What a request took.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Tokens in the prompt.
    pub prompt_tokens: usize,
    /// Those of them that were computed for an earlier request.
    pub cached_tokens: usize,
    /// Tokens generated for all outputs, those that ended them included.
    pub completion_tokens: usize,
    /// Where the time went.
    pub timings: Timings,
    /// Reproduces the outputs.
    pub seed: u64,
}

/// Why an output ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An eos id, stop id or stop string.
    Stop,
    /// `max_new_tokens`, or the end of the context.
    Length,
    /// It was given up: a shutdown, or a caller that does not read.
    Cancelled,
    /// Its deadline passed while it ran.
    Deadline,
    /// The model failed.
    Error,
}

impl FinishReason {
    /// For logs and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
            Self::Error => "error",
        }
    }
}

/// Where a request's time went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// In the queue.
    pub queue: Duration,
    /// From leaving the queue to the first sampled token.
    pub prefill: Duration,
    /// From the first sampled token to the last.
    pub decode: Duration,
}

impl Delta {
    /// Returns the text of all parts.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().map(|part| part.text.as_str()).collect()
    }

    /// Returns true if there is neither text nor a token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.text.is_empty()) && self.token_ids.is_empty() && self.tokens.is_empty()
    }
}
