//! Checks what an engine in another process reports: that it belongs to the request, and does not contradict
//! itself. Text is made from the token ids here, so that an engine cannot report a wrong one.

use std::fmt;
use std::sync::Arc;

use super::event::FinishReason;
use crate::request::PreparedRequest;
use crate::sampling::Logprobs;

/// Largest log-probability, with a tolerance for rounding. The smallest is -inf.
const MAX_LOGPROB: f32 = 1e-2;

/// The reports about one output.
#[derive(Debug)]
pub struct TokenCheck {
    vocabulary: usize,
    context: usize,
    /// The prompt and the tokens before a resume.
    ids: Arc<Vec<u32>>,
    prompt_tokens: usize,
    min_tokens: usize,
    max_tokens: usize,
    stop_token_ids: Vec<u32>,
    has_grammar: bool,
    logprobs: Option<usize>,
    prompt_logprobs: Option<usize>,
    is_accepted: bool,
    /// Tokens of the prompt with log-probabilities.
    reported: usize,
    /// With the tokens before a resume.
    tokens: usize,
    last: Option<u32>,
    has_ended: bool,
}

/// How a report contradicts the request or the reports before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction(String);

impl Contradiction {
    pub(super) fn without_room(output: u32) -> Self {
        Self(format!("sent a token of the output {output} for which its caller has no room"))
    }

    pub(super) fn of_grammar(id: u32) -> Self {
        Self(format!("sent the token id {id}, which the grammar does not allow"))
    }

    pub(super) fn of_end(tokens: usize) -> Self {
        Self(format!("ended the output after {tokens} tokens, within its grammar"))
    }

    pub(super) fn of_cached(cached: usize, prompt: usize) -> Self {
        Self(format!("reported {cached} cached tokens of {prompt}"))
    }

    /// Returns a contradiction that only an engine's protocol shows.
    #[must_use]
    pub fn of_protocol(problem: String) -> Self {
        Self(problem)
    }

    pub(super) fn of_output(output: u32) -> Self {
        Self(format!("reported the output {output}, which is not requested"))
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Contradiction {}

type Checked = Result<(), Contradiction>;

/// Fails if `holds` is false.
fn require(holds: bool, problem: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Contradiction(problem())) }
}

impl TokenCheck {
    /// Returns the check of one output, for a model with these sizes.
    #[must_use]
    pub fn new(request: &PreparedRequest, vocabulary: usize, context: usize) -> Self {
        let count = |count: Option<u32>| count.map(|count| count as usize);
        Self {
            vocabulary,
            context,
            ids: Arc::clone(&request.ids),
            prompt_tokens: request.prompt_tokens,
            min_tokens: request.limits.min_new_tokens,
            max_tokens: request.limits.max_new_tokens,
            stop_token_ids: request.limits.stop_token_ids.clone(),
            has_grammar: request.grammar.is_some(),
            logprobs: count(request.returns.logprobs),
            prompt_logprobs: count(request.returns.prompt_logprobs),
            is_accepted: false,
            reported: 0,
            tokens: request.generated().len(),
            last: None,
            has_ended: false,
        }
    }

    /// Checks the numbers of the prompt's tokens, and of its cached ones.
    ///
    /// # Errors
    /// They are not of the request's prompt, or it was accepted before.
    pub fn accept(&mut self, prompt_tokens: usize, cached_tokens: usize) -> Checked {
        let expected = self.prompt_tokens;
        require(!std::mem::replace(&mut self.is_accepted, true), || "accepted the request twice".into())?;
        require(prompt_tokens == expected, || format!("accepted {prompt_tokens} prompt tokens, requested {expected}"))?;
        if cached_tokens <= expected { Ok(()) } else { Err(Contradiction::of_cached(cached_tokens, expected)) }
    }

    /// Checks log-probabilities of the next prompt tokens.
    ///
    /// # Errors
    /// They are not requested, too many, of other tokens than the prompt's, or no log-probabilities.
    pub fn prompt(&mut self, tokens: &[(u32, Logprobs)]) -> Checked {
        self.require_accepted()?;
        let first = self.reported + 1; // the prompt's first token follows no other, and so has no probability
        self.reported += tokens.len();
        let (reported, expected) = (self.reported, self.prompt_tokens);
        let Some(top) = self.prompt_logprobs else {
            return require(tokens.is_empty(), || {
                "sent log-probabilities of the prompt, which are not requested".into()
            });
        };
        require(self.last.is_none(), || "sent log-probabilities of the prompt after the output".into())?;
        require(reported < expected.max(1), || {
            format!("sent log-probabilities of {reported} tokens for a prompt of {expected}")
        })?;
        let prompt = self.ids[..expected].iter().skip(first);
        tokens.iter().zip(prompt).try_for_each(|((id, logprobs), expected)| {
            require(id == expected, || format!("sent a log-probability of token id {id}, the prompt has {expected}"))?;
            self.logprobs(*id, logprobs, top)
        })
    }

    /// Checks the next token.
    ///
    /// # Errors
    /// It is not in the vocabulary, beyond the request's limit, or has other log-probabilities than requested.
    pub fn token(&mut self, id: u32, logprobs: Option<&Logprobs>) -> Checked {
        self.require_accepted()?;
        self.tokens += 1;
        let (tokens, most) = (self.tokens, self.max_tokens);
        require(!self.has_ended, || "sent a token after the end of the output".into())?;
        require(tokens <= most, || format!("sent {tokens} tokens, requested at most {most}"))?;
        let expected = self.prompt_logprobs.map_or(0, |_| self.prompt_tokens.saturating_sub(1));
        require(self.last.is_some() || self.reported >= expected, || {
            format!("sent log-probabilities of {} prompt tokens, requested {expected}", self.reported)
        })?;
        require(logprobs.is_some() == self.logprobs.is_some(), || {
            "sent log-probabilities that are not requested, or left them out".into()
        })?;
        let (is_early, least) = (tokens <= self.min_tokens, self.min_tokens);
        require(!(is_early && self.stop_token_ids.contains(&id)), || {
            format!("sent a stop token after {} tokens, requested at least {least}", tokens - 1)
        })?;
        self.last = Some(id);
        self.id(id)?;
        logprobs.map_or(Ok(()), |logprobs| self.logprobs(id, logprobs, self.logprobs.unwrap_or(0)))
    }

    /// Checks the end of the output by the engine, and its number of tokens.
    ///
    /// # Errors
    /// Neither the request nor the tokens give this reason.
    pub fn end(&mut self, reason: FinishReason, tokens: usize) -> Checked {
        self.require_accepted()?;
        let sent = self.tokens;
        require(!self.has_ended, || "ended the output twice".into())?;
        self.has_ended = true;
        require(tokens == sent, || format!("reported {tokens} tokens after {sent}"))?;
        let is_at_stop = self.last.is_some_and(|id| self.stop_token_ids.contains(&id)) && sent > self.min_tokens;
        let is_long = sent >= self.max_tokens || self.prompt_tokens + sent >= self.context;
        let (is_given, name) = match reason {
            FinishReason::Stop => (is_at_stop || self.has_grammar, "a stop token or a grammar"),
            FinishReason::Length => (is_long, "the limit of tokens"),
            FinishReason::GrammarLimit => (self.has_grammar, "a grammar"),
            FinishReason::Cancelled | FinishReason::Deadline | FinishReason::Error => (true, ""),
        };
        require(is_given, || format!("ended the output with {} after {sent} tokens, without {name}", reason.name()))
    }

    fn require_accepted(&self) -> Checked {
        require(self.is_accepted, || "reported an output before it accepted the request".into())
    }

    fn id(&self, id: u32) -> Checked {
        let size = self.vocabulary;
        require((id as usize) < size, || format!("sent token id {id} of a vocabulary of {size}"))
    }

    /// Checks a token with at most `count` of the likeliest tokens at its position.
    fn logprobs(&self, id: u32, Logprobs { logprob, top }: &Logprobs, count: usize) -> Checked {
        require(top.len() <= count, || format!("sent {} likeliest tokens, requested {count}", top.len()))?;
        std::iter::once((id, *logprob)).chain(top.iter().copied()).try_for_each(|(id, logprob)| {
            require(logprob <= MAX_LOGPROB, || format!("sent the log-probability {logprob}"))?;
            self.id(id)
        })
    }
}
