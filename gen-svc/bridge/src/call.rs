//! One call of an engine for one output: token ids in, token ids out.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use tandem_core::grammar::Grammar;
use tandem_core::sampling::{Chosen, Logprobs, Sampling};

/// The pause before a busy engine is asked again.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(200);
/// The most bytes of an engine's message in an error.
const MAX_MESSAGE_BYTES: usize = 300;
/// The most bytes of an answer, whatever the call asks for.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// The bytes of an answer beside its tokens.
pub(crate) const ANSWER_BYTES: usize = 1 << 20;
/// The most bytes of a token in an answer, and of each likely token with its log-probability.
pub(crate) const TOKEN_BYTES: usize = 512;

/// What an engine generates. Every value is set, so that no default of an engine applies.
#[derive(Debug, Clone)]
pub struct Call {
    /// The prompt, and the tokens of the output so far.
    pub ids: Vec<u32>,
    /// The most tokens. At least 1.
    pub max_tokens: usize,
    /// The tokens before which none of `stop_token_ids` may be chosen.
    pub min_tokens: usize,
    /// Ids that end the output. The engine may end the call there.
    pub stop_token_ids: Vec<u32>,
    /// Ids that may not be chosen.
    pub banned: Vec<u32>,
    /// The sampling parameters. `n` and `seed` are of the request.
    pub sampling: Sampling,
    /// The seed of this call.
    pub seed: u64,
    /// The number of likeliest tokens at each position whose log-probabilities are reported. None: none is, nor
    /// that of the chosen token.
    pub logprobs: Option<u32>,
    /// The same for the tokens of the prompt.
    pub prompt_logprobs: Option<u32>,
    /// The grammar of the tokens.
    pub grammar: Option<Arc<Grammar>>,
    /// A higher one runs first.
    pub priority: i32,
    /// Cached parts of prompts are reused only between calls with the same salt.
    pub cache_salt: Arc<str>,
}

impl Call {
    /// Returns the most bytes of an answer, or of an event of a stream, which may repeat the output so far.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        let of_prompt = self.prompt_logprobs.map_or(0, |_| self.ids.len());
        let likely = self.logprobs.max(self.prompt_logprobs).map_or(0, |count| count as usize + 1);
        let tokens = self.max_tokens.saturating_add(of_prompt);
        tokens.saturating_mul((1 + likely) * TOKEN_BYTES).saturating_add(ANSWER_BYTES).min(MAX_ANSWER_BYTES)
    }

    /// Returns the seed of a request for the tokens after [`ids`](Self::ids), with this many bits. Each request starts
    /// new random numbers, so that it depends on the position too. The mixing is the finalizer of SplitMix64.
    #[must_use]
    pub fn seed(&self, bits: u32) -> u64 {
        let mut mixed = self.seed.wrapping_add((self.ids.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) >> (u64::BITS - bits)
    }
}

/// What an engine reports during a call.
#[derive(Debug)]
pub enum Report {
    /// The engine computes the prompt: this many tokens are computed, of which `cached` were found in its cache.
    Prompt { computed: usize, cached: usize },
    /// Log-probabilities of the prompt's tokens, from the second on.
    PromptLogprobs(Vec<(u32, Logprobs)>),
    /// The next tokens.
    Tokens(Vec<Chosen>),
    /// Tokens of the prompt that were found in the engine's cache. Reported at the end of a call.
    Cached(usize),
    /// The end of the call, and the last report.
    Ended(CallEnd),
}

/// Returns a token with its log-probability, and at most `most` of the likeliest tokens. `others`: the tokens that an
/// engine reports at its position, in any order.
pub(crate) fn with_top(id: u32, logprob: f32, mut others: Vec<(u32, f32)>, most: u32) -> (u32, Logprobs) {
    others.push((id, logprob));
    others.sort_by(|(one, first), (other, second)| second.total_cmp(first).then(one.cmp(other)));
    others.dedup_by_key(|(id, _)| *id);
    others.truncate(most as usize);
    (id, Logprobs { logprob, top: others })
}

/// Returns tokens without log-probabilities.
pub(crate) fn plain(ids: &[u32]) -> Vec<Chosen> {
    ids.iter().map(|&id| Chosen { id, logprobs: None }).collect()
}

/// Why a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// At a stop id, at an id that the engine takes for an end, or at the end of the grammar.
    Stop,
    /// At `max_tokens`.
    Length,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The engine has no room. It may have later.
    #[error("engine is busy")]
    Busy,
    /// The engine rejects the request.
    #[error("engine rejects the request: {0}")]
    Rejected(String),
    /// The engine denies access, or does not have the path.
    #[error("it answers {0}; check --engine, --engine-url and --engine-token-file")]
    Denied(u16),
    /// The engine does not answer, or has failed.
    #[error("engine is lost: {0}")]
    Lost(String),
    /// The engine contradicts its protocol.
    #[error("engine contradicts its protocol: {0}")]
    Contradiction(String),
}

impl CallError {
    /// Returns the error of a broken connection: the last cause, which has no address.
    pub(crate) fn lost(error: &(dyn Error + 'static)) -> Self {
        Self::Lost(last_cause(error))
    }
}

/// Returns whether the engine accepts a request.
///
/// # Errors
/// It is busy.
pub(crate) fn is_accepted<T>(answer: Result<T, CallError>) -> Result<bool, CallError> {
    match answer {
        Ok(_) => Ok(true),
        Err(CallError::Busy) => Err(CallError::Busy),
        Err(_) => Ok(false),
    }
}

/// Checks a count that an engine reports. None: it reports none.
///
/// # Errors
/// It is not that of the call.
pub(crate) fn check_count(name: &str, reported: Option<usize>, count: usize) -> Result<(), CallError> {
    match reported {
        Some(reported) if reported != count => {
            Err(CallError::Contradiction(format!("{name} is {reported}, and the call has {count}")))
        }
        _ => Ok(()),
    }
}

/// Returns the last cause of an error. The ones before it have the address.
pub(crate) fn last_cause(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Returns an engine's message, shortened, on one line.
pub(crate) fn shortened(message: &str) -> String {
    let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
    message[..end].split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The reports of a call. After an error or [`Report::Ended`], there is none. Dropping them cancels the call.
pub type Reports = Pin<Box<dyn Stream<Item = Result<Report, CallError>> + Send>>;
