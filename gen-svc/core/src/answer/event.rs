//! The events of a request. Their order is `Accepted`, any number of `PromptLogprobs` and then of
//! `Delta`, one `Finished` for each output, and `Summary`. A rejected request has only `Refused`. A
//! failure of the engine ends a running request with `Refused`.

use std::time::Duration;

use crate::error::RequestError;
use crate::output::{Matched, TextSegment};
use crate::request::Limits;
use crate::sampling::Sampling;

/// One event of a request.
#[derive(Debug)]
pub enum Event {
    /// The request is rejected, or the engine has failed. This is the last event.
    Refused(RequestError),
    /// The request has left the queue. This is the first event.
    Accepted(Accepted),
    /// Log-probabilities of the next prompt tokens, if requested. All come before the first delta.
    PromptLogprobs(Vec<Token>),
    /// More of an output.
    Delta(Delta),
    /// The end of an output.
    Finished(Finished),
    /// The end of the request, and the last event.
    Summary(Summary),
}

/// A request with all defaults applied.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// All sampling parameters.
    pub sampling: Sampling,
    /// All limits.
    pub limits: Limits,
    /// Tokens in the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: usize,
    /// Prompt tokens of images.
    pub image_tokens: usize,
    /// Time spent in the queue.
    pub queue: Duration,
}

/// More of an output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// The index of the output, from 0.
    pub output: u32,
    /// At least one segment, in order. An empty last segment states whether the text that follows
    /// is reasoning. The bytes are empty unless requested.
    pub segments: Vec<TextSegment>,
    /// The tokens sampled since the last delta, if requested.
    pub token_ids: Vec<u32>,
    /// The same tokens with log-probabilities, if requested.
    pub tokens: Vec<Token>,
}

/// A token and its log-probability under the raw logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// The token id.
    pub id: u32,
    /// The token's bytes, not always whole characters.
    pub bytes: Vec<u8>,
    /// The natural logarithm of the token's probability.
    pub logprob: f32,
    /// The likeliest tokens at this position, in descending order.
    pub top: Vec<TopToken>,
}

/// One of the likeliest tokens at a position.
#[derive(Debug, Clone, PartialEq)]
pub struct TopToken {
    /// The token id.
    pub id: u32,
    /// The token's bytes, not always whole characters.
    pub bytes: Vec<u8>,
    /// The natural logarithm of the token's probability.
    pub logprob: f32,
}

/// The end of an output.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Text that was held back, the last token, and the index of the output.
    pub last: Delta,
    /// The finish reason.
    pub reason: FinishReason,
    /// The stop token or string, if the reason is `Stop`.
    pub matched: Option<Matched>,
    /// The output's text after the extraction rules, if requested.
    pub extracted_text: Option<String>,
    /// True if the request has a grammar, and the output ended before its first token.
    pub grammar_not_reached: bool,
}

/// Usage and times of a request.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Tokens in the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: usize,
    /// Prompt tokens of images.
    pub image_tokens: usize,
    /// Tokens generated for all outputs, including stop tokens.
    pub completion_tokens: usize,
    /// The times of the request's phases.
    pub timings: Timings,
    /// The seed. A request with this seed reproduces the outputs.
    pub seed: u64,
}

/// The finish reason of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The output reached an eos id, a stop id, a stop string, or the end of the grammar.
    Stop,
    /// The output reached `max_new_tokens` or the end of the context.
    Length,
    /// A shutdown cancelled the output, or the caller did not read it.
    Cancelled,
    /// The deadline passed.
    Deadline,
    /// The model failed.
    Error,
    /// The grammar exceeded its cost limit.
    GrammarLimit,
}

impl FinishReason {
    /// Returns the name in logs and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
            Self::Error => "error",
            Self::GrammarLimit => "grammar_limit",
        }
    }
}

/// The times of a request's phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Time in the queue.
    pub queue: Duration,
    /// From leaving the queue to the first sampled token.
    pub prefill: Duration,
    /// From the first sampled token to the last.
    pub decode: Duration,
}

impl Delta {
    /// Returns the text of all segments.
    #[must_use]
    pub fn text(&self) -> String {
        self.segments.iter().map(|segment| segment.text.as_str()).collect()
    }

    /// Returns true if the delta has neither text nor tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.iter().all(|segment| segment.text.is_empty())
            && self.token_ids.is_empty()
            && self.tokens.is_empty()
    }
}
