//! Checks that a replica's report of an output belongs to the request, and does not contradict itself.

use std::collections::HashSet;

use tandem_common::pb::generate::v1::finished::Matched;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::{
    Accepted, Delta, FinishReason, Finished, PromptLogprobs, Sampling, Summary, Timings, TokenInfo, Usage,
};

use super::served_model::ReplicaModel;
use crate::task::request::{GenerationOptions, GenerationRequest, Prompt};

/// Most bytes of a token's text. The longest tokens of known vocabularies have some hundred.
const MAX_TOKEN_BYTES: usize = 4096;
/// Largest log probability, with a tolerance for rounding. The smallest is -inf.
const MAX_LOGPROB: f32 = 1e-2;
/// Most deltas without output in a row.
const MAX_EMPTY_DELTAS: usize = 64;

/// The output that a call may have, and has had.
#[derive(Debug)]
pub(super) struct OutputCheck {
    expected: Expected,
    accepted: Accepted,
    /// Tokens of the prompt with log probabilities.
    prompt_logprobs: usize,
    last_id: Option<u32>,
    /// The call's tokens, without the resumed ones.
    tokens: usize,
    /// The larger of the text's bytes and the bytes of [`Delta::bytes`].
    bytes: usize,
    empty_in_a_row: usize,
}

/// The limits of the request and of the replica's model.
#[derive(Debug)]
struct Expected {
    /// None: the prompt has images, whose tokens only the replica counts.
    prompt_tokens: Option<usize>,
    resumed_tokens: usize,
    /// Of the whole output. None: the replica decides.
    max_tokens: Option<usize>,
    seed: Option<u64>,
    /// Number of the likeliest tokens at each position.
    logprobs: Option<usize>,
    prompt_logprobs: Option<usize>,
    returns_extracted_text: bool,
    returns_bytes: bool,
    /// A grammar may be complete before the first token, and may become too costly.
    has_grammar: bool,
    stop_strings: HashSet<String>,
    min_tokens: usize,
    /// None: the replica does not report it.
    vocabulary_size: Option<u32>,
    context_length: Option<usize>,
}

impl Expected {
    fn new(request: &GenerationRequest, resumed_tokens: usize, model: &ReplicaModel) -> Self {
        let GenerationOptions { stop, return_options, output_spec, .. } = &request.options;
        let stop = stop.as_ref();
        let of_stop = stop.into_iter().flat_map(|stop| &stop.stop_strings);
        let count = |requested: Option<u32>| requested.map(|count| count as usize);
        Self {
            prompt_tokens: match &request.prompt {
                Prompt::TokenIds { ids, media } if media.is_empty() => Some(ids.len()),
                _ => None,
            },
            resumed_tokens,
            max_tokens: count(stop.and_then(|stop| stop.max_new_tokens)),
            seed: request.options.sampling.seed,
            logprobs: count(return_options.logprobs),
            prompt_logprobs: count(return_options.prompt_logprobs),
            returns_extracted_text: return_options.extracted_text,
            returns_bytes: return_options.bytes,
            has_grammar: request.options.grammar.is_some(),
            stop_strings: of_stop.chain(&output_spec.stop_strings).cloned().collect(),
            min_tokens: stop.map_or(0, |stop| stop.min_new_tokens as usize),
            vocabulary_size: model.vocabulary_size(),
            context_length: model.context_length(),
        }
    }
}

impl OutputCheck {
    /// Returns the check of a call that resumes the request's output after this number of tokens.
    pub(super) fn new(request: &GenerationRequest, resumed_tokens: usize, model: &ReplicaModel) -> Self {
        Self {
            expected: Expected::new(request, resumed_tokens, model),
            accepted: Accepted::default(),
            prompt_logprobs: 0,
            last_id: None,
            tokens: 0,
            bytes: 0,
            empty_in_a_row: 0,
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Describes how the event exceeds the request or contradicts the events before it.
    pub(super) fn add(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Accepted(accepted) => self.accept(accepted),
            Event::PromptLogprobs(PromptLogprobs { tokens }) => self.add_prompt_logprobs(tokens),
            Event::Delta(delta) => self.add_delta(delta),
            Event::Finished(finished) => self.finish(finished),
            Event::Summary(summary) => self.sum_up(summary),
            Event::Progress(_) => Ok(()),
        }
    }

    fn accept(&mut self, accepted: &Accepted) -> Result<(), String> {
        let prompt_tokens = accepted.prompt_tokens as usize;
        if let Some(expected) = self.expected.prompt_tokens.filter(|expected| *expected != prompt_tokens) {
            return Err(format!("accepted {prompt_tokens} prompt tokens, requested {expected}"));
        }
        check_parts(accepted.prompt_tokens, accepted.cached_tokens, accepted.image_tokens)?;
        check_time("queue_ms", accepted.queue_ms)?;
        self.check_sampling(accepted.sampling.as_ref())?;
        if let Some(in_effect) = accepted.stop.as_ref().and_then(|stop| stop.max_new_tokens) {
            let limit = self.expected.max_tokens.get_or_insert(in_effect as usize);
            *limit = (*limit).min(in_effect as usize);
        }
        self.accepted = accepted.clone();
        Ok(())
    }

    fn check_sampling(&self, sampling: Option<&Sampling>) -> Result<(), String> {
        let Some(Sampling { temperature, top_p, min_p, repetition_penalty, seed, n, .. }) = sampling else {
            return Ok(());
        };
        let numbers = [temperature, top_p, min_p, repetition_penalty];
        if numbers.into_iter().flatten().any(|number| !number.is_finite()) {
            return Err("accepted sampling parameters that are not numbers".to_owned());
        }
        if n.is_some_and(|n| n != 1) || (seed.is_some() && *seed != self.expected.seed) {
            return Err("accepted another seed or number of outputs than the requested one".to_owned());
        }
        Ok(())
    }

    fn add_prompt_logprobs(&mut self, tokens: &[TokenInfo]) -> Result<(), String> {
        self.prompt_logprobs += tokens.len();
        let Some(top) = self.expected.prompt_logprobs else {
            return Err("sent log probabilities of the prompt, which are not requested".to_owned());
        };
        if self.tokens > 0 {
            return Err("sent log probabilities of the prompt after the output".to_owned());
        }
        let prompt_tokens = self.accepted.prompt_tokens as usize;
        if self.prompt_logprobs >= prompt_tokens.max(1) {
            let sent = self.prompt_logprobs;
            return Err(format!("sent log probabilities of {sent} tokens for a prompt of {prompt_tokens}"));
        }
        tokens.iter().try_for_each(|token| self.check_token(token, top))
    }

    fn add_delta(&mut self, delta: &Delta) -> Result<(), String> {
        let (tokens, bytes) = (delta.token_ids.len(), delta.text.len().max(delta.bytes.len()));
        self.empty_in_a_row = if tokens + bytes == 0 { self.empty_in_a_row + 1 } else { 0 };
        self.tokens += tokens;
        self.bytes += bytes;
        if let Some(limit) = self.expected.max_tokens.filter(|limit| self.completion_tokens() > *limit) {
            return Err(format!("sent {} tokens, requested at most {limit}", self.completion_tokens()));
        }
        // The last delta of a token has its id.
        if self.bytes > (self.tokens + 1).saturating_mul(MAX_TOKEN_BYTES) {
            return Err(format!("sent {} bytes of text for {} tokens", self.bytes, self.tokens));
        }
        if self.empty_in_a_row > MAX_EMPTY_DELTAS {
            return Err(format!("sent {} deltas without output in a row", self.empty_in_a_row));
        }
        if !delta.bytes.is_empty() && !self.expected.returns_bytes {
            return Err("sent bytes, which are not requested".to_owned());
        }
        self.last_id = delta.token_ids.last().copied().or(self.last_id);
        delta.token_ids.iter().try_for_each(|id| self.check_id(*id))?;
        self.check_logprobs(delta)
    }

    /// Checks the log probabilities of a delta's tokens, and before the first ones those of the prompt.
    fn check_logprobs(&self, delta: &Delta) -> Result<(), String> {
        let Expected { prompt_logprobs, resumed_tokens, prompt_tokens, logprobs, .. } = &self.expected;
        let prompt_logprobs = prompt_logprobs.and(*prompt_tokens).filter(|_| *resumed_tokens == 0);
        if let Some(prompt_tokens) = prompt_logprobs.filter(|tokens| self.prompt_logprobs + 1 < *tokens) {
            let sent = self.prompt_logprobs;
            return Err(format!("sent log probabilities of {sent} tokens for a prompt of {prompt_tokens}"));
        }
        let (ids, has_logprobs) = (delta.token_ids.iter().copied(), logprobs.is_some());
        if !delta.tokens.iter().map(|token| token.id).eq(ids.filter(|_| has_logprobs)) {
            return Err("sent log probabilities of other tokens than the delta's".to_owned());
        }
        delta.tokens.iter().try_for_each(|token| self.check_token(token, logprobs.unwrap_or(0)))
    }

    fn finish(&self, finished: &Finished) -> Result<(), String> {
        let reason = finished.reason();
        let is_whole = matches!(reason, FinishReason::Stop | FinishReason::Length);
        let Expected { has_grammar, resumed_tokens, returns_extracted_text, .. } = &self.expected;
        if is_whole && self.tokens == 0 && !has_grammar {
            return Err(format!("ended the output with {} before its first token", reason.as_str_name()));
        }
        if self.tokens + resumed_tokens == 0 && self.bytes > 0 {
            return Err(format!("sent {} bytes of text without a token", self.bytes));
        }
        if reason == FinishReason::Length && self.is_short() {
            return Err(format!("ended the output with LENGTH after {} tokens", self.completion_tokens()));
        }
        if reason == FinishReason::GrammarLimit && !has_grammar {
            return Err("ended the output with GRAMMAR_LIMIT without a grammar".to_owned());
        }
        let extracted = finished.extracted_text.as_ref();
        if extracted.is_some() != *returns_extracted_text && (is_whole || extracted.is_some()) {
            return Err("sent extracted text that is not requested, or left it out".to_owned());
        }
        let most = (self.completion_tokens() + 1).saturating_mul(MAX_TOKEN_BYTES);
        if let Some(text) = extracted.filter(|text| text.len() > most) {
            return Err(format!("sent {} bytes of text for {} tokens", text.len(), self.completion_tokens()));
        }
        self.check_match(finished)
    }

    /// Checks the match that ended the output.
    fn check_match(&self, finished: &Finished) -> Result<(), String> {
        let is_stop = finished.reason() == FinishReason::Stop;
        match &finished.matched {
            Some(_) if !is_stop => {
                Err(format!("ended the output with a match and {}", finished.reason().as_str_name()))
            }
            None if is_stop && !self.expected.has_grammar => {
                Err("ended the output with STOP without a match".to_owned())
            }
            Some(Matched::StopString(text)) if !self.expected.stop_strings.contains(text) => {
                Err("ended the output with a stop string that is not requested".to_owned())
            }
            Some(Matched::StopTokenId(id)) if self.last_id != Some(*id) => {
                Err(format!("ended the output with the stop token {id}, which is not its last"))
            }
            Some(Matched::StopTokenId(_)) if self.completion_tokens() <= self.expected.min_tokens => {
                Err(format!("ended the output with a stop token after {} tokens", self.completion_tokens()))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if the replica ended the output before the model or the caller's limits did.
    pub(super) fn is_early_end(&self, finished: &Finished) -> bool {
        match finished.reason() {
            FinishReason::Cancelled => true,
            // A grammar that fails may be the caller's fault.
            FinishReason::Error => !self.expected.has_grammar,
            _ => false,
        }
    }

    /// Returns true if neither the limit of tokens nor the context is reached. If one of them is not known, it
    /// may be.
    fn is_short(&self) -> bool {
        let tokens = self.completion_tokens();
        let is_below = |limit: Option<usize>, count: usize| limit.is_some_and(|limit| count < limit);
        is_below(self.expected.max_tokens, tokens)
            && is_below(self.expected.context_length, self.accepted.prompt_tokens as usize + tokens)
    }

    fn sum_up(&self, Summary { usage, timings, seed }: &Summary) -> Result<(), String> {
        let (Some(usage), Some(timings)) = (usage, timings) else {
            return Err("sent a summary without `usage` and `timings`".to_owned());
        };
        self.check_usage(usage)?;
        let Timings { queue_ms, prefill_ms, decode_ms } = *timings;
        for (name, time) in [("queue_ms", queue_ms), ("prefill_ms", prefill_ms), ("decode_ms", decode_ms)] {
            check_time(name, time)?;
        }
        match self.expected.seed {
            Some(expected) if expected != *seed => Err("reported another seed than the requested one".to_owned()),
            _ => Ok(()),
        }
    }

    fn check_usage(&self, usage: &Usage) -> Result<(), String> {
        let Usage { prompt_tokens, completion_tokens, total_tokens, cached_tokens, image_tokens } = *usage;
        if completion_tokens as usize != self.completion_tokens() {
            let sent = self.completion_tokens();
            return Err(format!("reported {completion_tokens} completion tokens after {sent}"));
        }
        if prompt_tokens != self.accepted.prompt_tokens || image_tokens != self.accepted.image_tokens {
            return Err("reported another number of prompt tokens than in `accepted`".to_owned());
        }
        if Some(total_tokens) != prompt_tokens.checked_add(completion_tokens) {
            return Err(format!("reported {total_tokens} tokens for {prompt_tokens} and {completion_tokens}"));
        }
        check_parts(prompt_tokens, cached_tokens, image_tokens)
    }

    /// Returns the number of the output's tokens, with the resumed ones.
    fn completion_tokens(&self) -> usize {
        self.expected.resumed_tokens + self.tokens
    }

    fn check_id(&self, id: u32) -> Result<(), String> {
        match self.expected.vocabulary_size {
            Some(size) if id >= size => Err(format!("sent token id {id} of a vocabulary of {size}")),
            _ => Ok(()),
        }
    }

    /// Checks a token with at most `count` of the likeliest tokens at its position.
    fn check_token(&self, token: &TokenInfo, count: usize) -> Result<(), String> {
        if token.top_logprobs.len() > count {
            return Err(format!("sent {} likeliest tokens, requested {count}", token.top_logprobs.len()));
        }
        let top = token.top_logprobs.iter().map(|top| (top.id, top.logprob));
        std::iter::once((token.id, token.logprob)).chain(top).try_for_each(|(id, logprob)| {
            let is_logprob = logprob <= MAX_LOGPROB;
            if is_logprob { self.check_id(id) } else { Err(format!("sent the log probability {logprob}")) }
        })
    }
}

/// Checks the parts of a prompt's tokens.
fn check_parts(prompt_tokens: u32, cached_tokens: u32, image_tokens: u32) -> Result<(), String> {
    if cached_tokens > prompt_tokens || image_tokens > prompt_tokens {
        return Err(format!("reported {cached_tokens} cached and {image_tokens} image tokens of {prompt_tokens}"));
    }
    Ok(())
}

fn check_time(name: &str, milliseconds: f64) -> Result<(), String> {
    let is_time = milliseconds.is_finite() && milliseconds >= 0.0;
    if is_time { Ok(()) } else { Err(format!("reported {name} {milliseconds}")) }
}
