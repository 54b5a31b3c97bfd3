//! The size of a replica's output. A replica is trusted to be honest; a faulty one could fill this process's memory.

use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::{Accepted, Delta, FinishReason, Finished};

use crate::task::request::GenerationRequest;

/// Most bytes of a token's text. The longest tokens of known vocabularies have some hundred.
const MAX_TOKEN_BYTES: usize = 4096;
/// Most deltas without output in a row.
const MAX_EMPTY_DELTAS: usize = 64;

/// The output that a call may have, and has had.
#[derive(Debug)]
pub(super) struct OutputSize {
    /// Of the whole output. None: the replica decides.
    max_tokens: Option<usize>,
    has_grammar: bool,
    /// With the resumed ones.
    tokens: usize,
    /// The larger of the text's bytes and the bytes of [`Delta::bytes`].
    bytes: usize,
    /// The call's tokens, without the resumed ones.
    received: usize,
    empty_in_a_row: usize,
}

impl OutputSize {
    /// Returns the size of a call that resumes the request's output after this number of tokens.
    pub(super) fn new(request: &GenerationRequest, resumed_tokens: usize) -> Self {
        let most = request.options.stop.as_ref().and_then(|stop| stop.max_new_tokens);
        Self {
            max_tokens: most.map(|most| most as usize),
            has_grammar: request.options.grammar.is_some(),
            tokens: resumed_tokens,
            bytes: 0,
            received: 0,
            empty_in_a_row: 0,
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Describes how the event exceeds the size.
    pub(super) fn add(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Accepted(accepted) => self.accept(accepted),
            Event::Delta(delta) => return self.add_delta(delta),
            Event::Finished(Finished { extracted_text: Some(text), .. }) => return self.check_text(text.len()),
            Event::Finished(_) | Event::PromptLogprobs(_) | Event::Summary(_) | Event::Progress(_) => {}
        }
        Ok(())
    }

    /// Takes the limit in effect, if it is smaller than the requested one.
    fn accept(&mut self, accepted: &Accepted) {
        if let Some(in_effect) = accepted.stop.as_ref().and_then(|stop| stop.max_new_tokens) {
            let limit = self.max_tokens.get_or_insert(in_effect as usize);
            *limit = (*limit).min(in_effect as usize);
        }
    }

    fn add_delta(&mut self, delta: &Delta) -> Result<(), String> {
        let (tokens, bytes) = (delta.token_ids.len(), delta.text.len().max(delta.bytes.len()));
        self.empty_in_a_row = if tokens + bytes == 0 { self.empty_in_a_row + 1 } else { 0 };
        self.tokens += tokens;
        self.received += tokens;
        self.bytes += bytes;
        if let Some(limit) = self.max_tokens.filter(|limit| self.tokens > *limit) {
            return Err(format!("sent {} tokens, requested at most {limit}", self.tokens));
        }
        // The last delta of a token has its id.
        if self.bytes > (self.received + 1).saturating_mul(MAX_TOKEN_BYTES) {
            return Err(format!("sent {} bytes of text for {} tokens", self.bytes, self.received));
        }
        if self.empty_in_a_row > MAX_EMPTY_DELTAS {
            return Err(format!("sent {} deltas without output in a row", self.empty_in_a_row));
        }
        Ok(())
    }

    /// Checks the size of the whole text.
    fn check_text(&self, bytes: usize) -> Result<(), String> {
        if bytes > (self.tokens + 1).saturating_mul(MAX_TOKEN_BYTES) {
            return Err(format!("sent {bytes} bytes of text for {} tokens", self.tokens));
        }
        Ok(())
    }

    /// Returns true if the event shows that the replica continues the task: it has sent more than the token that a
    /// resumed output repeats, or completes the output.
    pub(super) fn continues(&self, event: &Event) -> bool {
        let is_end = |finished: &Finished| !self.is_early_end(finished) && finished.reason() != FinishReason::Deadline;
        self.received > 1 || matches!(event, Event::Finished(finished) if is_end(finished))
    }

    /// Returns true if the replica ended the output before the model or the caller's limits did.
    pub(super) fn is_early_end(&self, finished: &Finished) -> bool {
        match finished.reason() {
            FinishReason::Cancelled => true,
            // A grammar that fails may be the caller's fault.
            FinishReason::Error => !self.has_grammar,
            _ => false,
        }
    }
}
