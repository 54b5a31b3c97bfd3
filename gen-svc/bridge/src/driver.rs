//! The life of one request: the calls of its outputs, and their reports.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tandem_core::answer::{CheckedAnswer, Contradiction, FinishReason, Flow};
use tandem_core::error::RequestError;
use tandem_core::grammar::GrammarKind;
use tandem_core::request::{PreparedRequest, Stage};
use tandem_core::sampling::{Chosen, Sampling};
use tandem_model_files::tokenizer::Tokenizer;
use tokio::time::{Instant, sleep_until};

use crate::call::{BUSY_PAUSE, Call, CallEnd, CallError, Report, Reports};
use crate::choice;
use crate::shared::{Problem, Shared};
use crate::spawned::Spawned;

/// How often a request is asked whether it ends.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Generates the outputs of a request until each has ended.
pub(crate) async fn run(mut answer: CheckedAnswer, shared: &Shared) {
    let mut outputs = Output::all(answer.request());
    let (request, most) = (answer.request(), answer.request().limits.max_new_tokens);
    let tokens = request.prompt_tokens.saturating_add(most.saturating_mul(outputs.len()));
    let _running = shared.count_running(tokens);
    if let Err(problem) = generate(&mut answer, &mut outputs, shared).await {
        shared.report_problem(&problem);
        match problem {
            Problem::Engine(CallError::Rejected(problem)) if !answer.is_accepted() => {
                answer.refuse(RequestError::EngineRejected { problem });
            }
            _ if !answer.is_accepted() => answer.refuse(RequestError::EngineUnavailable),
            _ => answer.abort(),
        }
    }
}

async fn generate(answer: &mut CheckedAnswer, outputs: &mut [Output], shared: &Shared) -> Result<(), Problem> {
    let mut look = Instant::now();
    let mut is_full = false;
    while !answer.has_ended() {
        if Instant::now() >= look {
            if answer.interrupt(shared.lifecycle.is_stopped(), shared.patience) {
                return Ok(());
            }
            if shared.is_lost() {
                return Err(CallError::Lost("it does not answer".to_owned()).into());
            }
            is_full = answer.is_full();
            if is_full {
                // The reader is waited for, not the engine.
                shared.record_work();
            }
            look = next_look(answer);
        }
        if !is_full {
            is_full = advance(answer, outputs, shared)?;
        }
        tokio::select! {
            (at, report) = next_report(outputs), if !is_full => {
                if let Some(Ok(Report::Tokens(tokens))) = &report {
                    shared.count_tokens(tokens.len());
                }
                shared.record_work();
                outputs[at].take(answer, report, at == 0)?;
            }
            () = sleep_until(look) => {}
            () = shared.stop.cancelled() => look = Instant::now(),
        }
    }
    Ok(())
}

/// Returns when a request is asked again whether it ends: at its deadline, and regularly before.
fn next_look(answer: &CheckedAnswer) -> Instant {
    let look = Instant::now() + LOOK_INTERVAL;
    answer.deadline().map_or(look, |deadline| look.min(deadline.max(std::time::Instant::now()).into()))
}

/// Advances the outputs that run: the first one until it has a token, then as many as the engine generates at once.
/// Returns true if the caller has no room.
fn advance(answer: &mut CheckedAnswer, outputs: &mut [Output], shared: &Shared) -> Result<bool, Problem> {
    let resumed = answer.request().generated().len();
    let has_token = |output: &Output| output.has_ended || output.reported > 0 || output.tokens.len() > resumed;
    // With its first token, the prompt is in the engine's cache for the other outputs.
    let most = if outputs.iter().any(has_token) { shared.limits.max_running } else { 1 };
    let mut running = 0;
    for output in outputs.iter_mut().filter(|output| !output.has_ended) {
        if running == most {
            break;
        }
        if output.advance(answer, shared)? {
            return Ok(true);
        }
        running += usize::from(!output.has_ended);
    }
    Ok(false)
}

/// Waits for the next report of any output.
async fn next_report(outputs: &mut [Output]) -> (usize, Option<Result<Report, CallError>>) {
    poll_fn(|context| {
        let polled = outputs.iter_mut().enumerate().map(|(at, output)| (at, output.poll(context)));
        for (at, poll) in polled {
            if let Poll::Ready(report) = poll {
                return Poll::Ready((at, report));
            }
        }
        Poll::Pending
    })
    .await
}

/// One output, and its call.
struct Output {
    index: u32,
    /// The tokens of the output, with those before a resume.
    tokens: Vec<u32>,
    call: Option<Reports>,
    /// Reported tokens that the answer does not have yet.
    pending: VecDeque<Chosen>,
    /// The end of the call, once its tokens are in the answer.
    call_end: Option<CallEnd>,
    /// The tokens that the call was asked for, and the reported ones.
    asked: usize,
    reported: usize,
    /// No call starts before, because the engine was busy.
    pause_end: Instant,
    has_ended: bool,
}

impl Output {
    /// Returns the outputs of a request before their first call.
    fn all(request: &PreparedRequest) -> Vec<Self> {
        let output = |at| Self {
            index: request.first_output + at,
            tokens: request.generated().to_vec(),
            call: None,
            pending: VecDeque::new(),
            call_end: None,
            asked: 0,
            reported: 0,
            pause_end: Instant::now(),
            has_ended: false,
        };
        (0..request.sampling.n).map(output).collect()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Report, CallError>>> {
        match &mut self.call {
            Some(call) if self.call_end.is_none() => call.as_mut().poll_next(context),
            _ => Poll::Pending,
        }
    }

    /// Gives reported tokens to the answer, and starts the next call where one is due. Returns true if the caller has
    /// no room.
    fn advance(&mut self, answer: &mut CheckedAnswer, shared: &Shared) -> Result<bool, Problem> {
        while !self.has_ended {
            if answer.is_full() {
                return Ok(true);
            }
            if let Some(chosen) = self.pending.pop_front() {
                self.push(answer, chosen)?;
            } else if let Some(end) = self.call_end.take() {
                self.call = None;
                self.end_call(answer, end)?;
            } else if self.call.is_some() || Instant::now() < self.pause_end {
                return Ok(false);
            } else if let Some(id) = answer.forced(self.index) {
                accept(answer, 0)?;
                self.pending.push_back(Chosen { id, logprobs: None });
            } else {
                self.start(answer, shared);
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn push(&mut self, answer: &mut CheckedAnswer, chosen: Chosen) -> Result<(), Problem> {
        let before = answer.stage(self.index);
        self.tokens.push(chosen.id);
        if answer.push(self.index, chosen)? == Flow::Ended {
            self.has_ended = true;
            self.leave_call();
            return Ok(());
        }
        if let Some(id) = answer.forced(self.index) {
            // The engine has chosen another token here, and those after it.
            self.leave_call();
            self.pending.push_back(Chosen { id, logprobs: None });
        } else if before != answer.stage(self.index) && answer.stage(self.index) == Stage::Bound {
            self.leave_call();
        }
        Ok(())
    }

    /// Ends the call before the engine does.
    fn leave_call(&mut self) {
        self.call = None;
        self.call_end = None;
        self.pending.clear();
    }

    /// Ends the output, or leaves it to the next call.
    fn end_call(&mut self, answer: &mut CheckedAnswer, end: CallEnd) -> Result<(), Problem> {
        let (asked, reported) = (self.asked, self.reported);
        match end {
            CallEnd::Stop if answer.stage(self.index) == Stage::Bound => {
                self.has_ended = true;
                Ok(answer.end(self.index, FinishReason::Stop, self.tokens.len())?)
            }
            // The engine takes a token for an end that the request does not.
            CallEnd::Stop if reported > 0 => Ok(()),
            CallEnd::Length if reported == asked => Ok(()),
            _ => {
                let problem = format!("ended ({end:?}) after {reported} tokens, asked for {asked}");
                Err(Contradiction::of_protocol(problem).into())
            }
        }
    }

    fn start(&mut self, answer: &CheckedAnswer, shared: &Shared) {
        let call = self.next_call(answer, &shared.model.tokenizer);
        (self.asked, self.reported) = (call.max_tokens, 0);
        self.call = Some(Spawned::reports(Arc::clone(&shared.protocol), call));
    }

    /// Returns the call for the tokens that the output still may have.
    fn next_call(&self, answer: &CheckedAnswer, tokenizer: &Tokenizer) -> Call {
        let request = answer.request();
        let (limits, count) = (&request.limits, self.tokens.len());
        let stage = answer.stage(self.index);
        let grammar = request.grammar.as_ref().filter(|_| stage == Stage::Bound);
        let banned = if stage == Stage::Waiting { request.reasoning.ends_of_turn.clone() } else { Vec::new() };
        let is_first_call = count == request.generated().len();
        let is_first = is_first_call && self.index == request.first_output;
        Call {
            ids: [request.prompt(), &self.tokens].concat(),
            max_tokens: limits.max_new_tokens - count,
            min_tokens: limits.min_new_tokens.saturating_sub(count),
            stop_token_ids: limits.stop_token_ids.clone(),
            banned,
            sampling: self.sampling(request),
            seed: request.sampling.seed.wrapping_add(u64::from(self.index)),
            logprobs: request.returns.logprobs,
            prompt_logprobs: request.returns.prompt_logprobs.filter(|_| is_first),
            grammar: grammar.map(|grammar| match choice::rests(request, tokenizer) {
                Some(rests) if is_first_call && request.bound > 0 => Arc::new(GrammarKind::Choice(rests).into()),
                _ => Arc::clone(&grammar.source),
            }),
            priority: request.priority,
            cache_salt: engine_salt(&request.cache_salt),
        }
    }

    /// Returns the sampling parameters of a call that continues the output. It does not count the tokens before it, so
    /// that their frequency penalty is a bias.
    fn sampling(&self, request: &PreparedRequest) -> Sampling {
        let mut sampling = request.sampling.clone();
        if sampling.frequency_penalty != 0.0 {
            let mut biases: BTreeMap<u32, f32> = sampling.logit_bias.iter().copied().collect();
            for id in &self.tokens {
                *biases.entry(*id).or_default() -= sampling.frequency_penalty;
            }
            sampling.logit_bias = biases.into_iter().collect();
        }
        sampling
    }

    /// Takes a report of the call. `is_first`: of the request's first output.
    fn take(
        &mut self,
        answer: &mut CheckedAnswer,
        report: Option<Result<Report, CallError>>,
        is_first: bool,
    ) -> Result<(), Problem> {
        let prompt_tokens = answer.request().prompt_tokens;
        match report {
            Some(Ok(Report::Prompt { computed, cached })) => {
                accept(answer, cached.min(prompt_tokens))?;
                answer.set_computed(computed);
            }
            Some(Ok(Report::PromptLogprobs(mut tokens))) => {
                accept(answer, 0)?;
                tokens.truncate(prompt_tokens.saturating_sub(1));
                answer.send_prompt(tokens)?;
            }
            Some(Ok(Report::Tokens(tokens))) => {
                accept(answer, 0)?;
                answer.set_computed(prompt_tokens);
                self.reported += tokens.len();
                self.pending.extend(tokens);
            }
            Some(Ok(Report::Cached(cached))) => {
                let is_of_prompt = is_first && self.tokens.len() <= answer.request().generated().len() + self.reported;
                if is_of_prompt {
                    accept(answer, 0)?;
                    answer.set_cached(cached.min(prompt_tokens))?;
                }
            }
            Some(Ok(Report::Ended(end))) => self.call_end = Some(end),
            Some(Err(CallError::Busy)) if self.reported == 0 => {
                self.call = None;
                self.pause_end = Instant::now() + BUSY_PAUSE;
            }
            Some(Err(error)) => return Err(error.into()),
            None => return Err(CallError::Lost("the call ended without an end".to_owned()).into()),
        }
        Ok(())
    }
}

/// Returns a salt as the engine gets it: vLLM allows 128 characters, and not all.
fn engine_salt(salt: &str) -> Arc<str> {
    let digest = |salt: &str| Sha256::digest(salt).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Some(salt).filter(|salt| !salt.is_empty()).map(digest).unwrap_or_default().into()
}

/// Takes the request out of the queue, at the engine's first report.
fn accept(answer: &mut CheckedAnswer, cached: usize) -> Result<(), Contradiction> {
    match answer.is_accepted() {
        true => Ok(()),
        false => answer.accept(answer.request().prompt_tokens, cached),
    }
}
