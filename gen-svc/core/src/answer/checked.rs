//! The answer to a request of an engine that is not trusted, such as one in another process.

use std::time::{Duration, Instant};

use super::check::{Contradiction, TokenCheck};
use super::event::FinishReason;
use super::state::{Answer, Flow, Interruption};
use crate::error::RequestError;
use crate::grammar::{Followed, Follower};
use crate::request::{PreparedRequest, ServedModel, Stage};
use crate::sampling::{Chosen, Logprobs};

/// An answer that takes an engine's reports after a check.
#[derive(Debug)]
pub struct CheckedAnswer {
    answer: Box<Answer>,
    outputs: Vec<CheckedOutput>,
    /// The model's end tokens.
    end_tokens: Vec<u32>,
}

#[derive(Debug)]
struct CheckedOutput {
    check: TokenCheck,
    /// The grammar's state, once it binds a token.
    follower: Option<Follower>,
    /// True once the output has ended above the engine, whose later reports are of no use.
    has_ended: bool,
}

impl CheckedOutput {
    /// Records that the output has ended. Returns its index if it had not.
    fn end(&mut self, index: u32) -> Option<u32> {
        (!std::mem::replace(&mut self.has_ended, true)).then_some(index)
    }
}

impl CheckedAnswer {
    /// Creates the checks for each output.
    #[must_use]
    pub fn new(answer: Box<Answer>, model: &ServedModel) -> Self {
        let request = answer.request();
        let output = |_| CheckedOutput {
            check: TokenCheck::new(request, model.vocabulary_size, model.context_length),
            follower: None,
            has_ended: false,
        };
        let outputs = (0..request.sampling.n).map(output).collect();
        Self { answer, outputs, end_tokens: model.eos_token_ids.clone() }
    }

    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> &PreparedRequest {
        self.answer.request()
    }

    /// Returns when the request ends at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.answer.deadline()
    }

    /// Ends the outputs that have not ended if the caller has cancelled the request, its deadline has passed, it
    /// is read too slowly, or the engine stops. Returns true if it did. Measures the room for events.
    pub fn interrupt(&mut self, is_stopped: bool, patience: Duration) -> bool {
        let Some(interruption) = self.answer.interruption(is_stopped, patience) else { return false };
        let first = self.answer.request().first_output;
        let unfinished: Vec<u32> =
            (first..).zip(&mut self.outputs).filter_map(|(index, output)| output.end(index)).collect();
        match interruption {
            Interruption::Refused(error) => self.answer.refuse(error),
            Interruption::CallerGone => {
                unfinished.into_iter().for_each(|index| self.answer.interrupt(index, Interruption::CallerGone));
            }
            Interruption::Ended(reason) => {
                unfinished.into_iter().for_each(|index| self.answer.interrupt(index, Interruption::Ended(reason)));
            }
        }
        true
    }

    /// Returns true if the caller has no room for further events. The engine then waits.
    pub fn is_full(&mut self) -> bool {
        self.answer.measure_back_pressure(Instant::now());
        self.answer.is_full()
    }

    /// Sets the place in the engine's queue, from 1.
    pub fn set_queue_place(&self, place: usize) {
        self.answer.progress().set_queue_place(place);
    }

    /// Sets the number of computed prompt tokens, cached ones included.
    pub fn set_computed(&self, tokens: usize) {
        self.answer.progress().set_computed(tokens.min(self.request().prompt_tokens));
    }

    /// Returns whether the grammar of an output binds its next token.
    #[must_use]
    pub fn stage(&self, output: u32) -> Stage {
        self.answer.stage(output)
    }

    /// Returns the token that must come next in an output because its reasoning has reached its limit.
    #[must_use]
    pub fn forced(&self, output: u32) -> Option<u32> {
        self.answer.forced(output)
    }

    /// Rejects a request that waits.
    pub fn refuse(&mut self, error: RequestError) {
        self.outputs.iter_mut().for_each(|output| output.has_ended = true);
        self.answer.refuse(error);
    }

    /// Returns true if every output has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.outputs.iter().all(|output| output.has_ended)
    }

    /// Takes the request out of the queue, with the prompt tokens that the engine counts.
    ///
    /// # Errors
    /// They are not of the request's prompt.
    pub fn accept(&mut self, prompt_tokens: usize, cached_tokens: usize) -> Result<(), Contradiction> {
        self.outputs.iter_mut().try_for_each(|output| output.check.accept(prompt_tokens, cached_tokens))?;
        self.answer.accept(cached_tokens);
        Ok(())
    }

    /// Returns true if the request has left the queue.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.answer.is_accepted()
    }

    /// Sets the cached tokens of the prompt, if the engine reports them after it has accepted the request.
    ///
    /// # Errors
    /// They are more than the prompt has.
    pub fn set_cached(&mut self, cached_tokens: usize) -> Result<(), Contradiction> {
        let prompt = self.request().prompt_tokens;
        if cached_tokens > prompt {
            return Err(Contradiction::of_cached(cached_tokens, prompt));
        }
        self.answer.set_cached(cached_tokens);
        Ok(())
    }

    /// Sends log-probabilities of the next prompt tokens.
    ///
    /// # Errors
    /// As [`TokenCheck::prompt`].
    pub fn send_prompt(&mut self, tokens: Vec<(u32, Logprobs)>) -> Result<(), Contradiction> {
        self.outputs.iter_mut().try_for_each(|output| output.check.prompt(&tokens))?;
        self.answer.send_prompt(tokens);
        Ok(())
    }

    /// Adds a token to an output, and sends its text. After [`Flow::Ended`], the engine need not generate more.
    ///
    /// # Errors
    /// As [`TokenCheck::token`]; there is no such output; the caller has [no room](Self::is_full) for it.
    pub fn push(&mut self, output: u32, chosen: Chosen) -> Result<Flow, Contradiction> {
        let state = self.output(output)?;
        if state.has_ended {
            return Ok(Flow::Ended);
        }
        state.check.token(chosen.id, chosen.logprobs.as_ref())?;
        if self.is_full() {
            return Err(Contradiction::without_room(output));
        }
        let followed = self.follow(output, chosen.id)?;
        if followed == Followed::Refused {
            return Err(Contradiction::of_grammar(chosen.id));
        }
        let flow = self.answer.push(output, chosen, |_| followed == Followed::Completes);
        match (flow, followed) {
            (Flow::Ended, _) => self.output(output)?.has_ended = true,
            (Flow::Continues, Followed::Completes) => {
                self.output(output)?.has_ended = true;
                self.answer.end(output, FinishReason::Stop);
                return Ok(Flow::Ended);
            }
            (Flow::Continues, _) => self.answer.deliver(output),
        }
        Ok(flow)
    }

    /// Adds a token to the text of the grammar, if it binds the output.
    fn follow(&mut self, output: u32, token: u32) -> Result<Followed, Contradiction> {
        let is_end = self.end_tokens.contains(&token);
        let follower = self.follower(output)?;
        Ok(follower.map_or(Followed::Continues, |follower| follower.push(token, is_end)))
    }

    /// Returns the grammar's state. None: no grammar binds the output.
    fn follower(&mut self, output: u32) -> Result<Option<&mut Follower>, Contradiction> {
        let is_bound = self.answer.stage(output) == Stage::Bound;
        let Some(grammar) = self.answer.request().grammar.clone().filter(|_| is_bound) else { return Ok(None) };
        Ok(Some(self.output(output)?.follower.get_or_insert_with(|| Follower::new(&grammar))))
    }

    /// Ends an output for the engine's reason, after this number of tokens. Ignored if it has ended above the
    /// engine.
    ///
    /// # Errors
    /// As [`TokenCheck::end`]; there is no such output.
    pub fn end(&mut self, output: u32, reason: FinishReason, tokens: usize) -> Result<(), Contradiction> {
        let state = self.output(output)?;
        if state.has_ended {
            return Ok(());
        }
        state.check.end(reason, tokens)?;
        if reason == FinishReason::Stop && self.follower(output)?.is_some_and(|follower| !follower.is_whole()) {
            return Err(Contradiction::of_end(tokens));
        }
        self.output(output)?.has_ended = true;
        self.answer.end(output, reason);
        Ok(())
    }

    /// Ends all outputs because the engine has failed or contradicts itself. Another replica can resume them.
    pub fn abort(&mut self) {
        let first = self.answer.request().first_output;
        for index in (first..).zip(&mut self.outputs).filter_map(|(index, output)| output.end(index)) {
            self.answer.abort(index);
        }
    }

    fn output(&mut self, output: u32) -> Result<&mut CheckedOutput, Contradiction> {
        let index = output.checked_sub(self.answer.request().first_output);
        let state = index.and_then(|index| self.outputs.get_mut(index as usize));
        state.ok_or_else(|| Contradiction::of_output(output))
    }
}
