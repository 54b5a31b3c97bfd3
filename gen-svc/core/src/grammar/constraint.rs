//! The grammar of one output while it is generated.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use llguidance::TokenParser;
use llguidance::api::StopReason;
use parking_lot::Mutex;

use super::jobs::Jobs;
use super::source::Grammar;
use crate::error::RequestError;

/// The most time to follow the tokens of a resumed output.
const MAX_RESUME_TIME: Duration = Duration::from_secs(2);

/// Threads that compute masks while the model's threads compute a step.
const MASK_THREADS: usize = 2;

/// The tokens that may follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mask {
    /// The tokens whose bit is set.
    Tokens(Vec<u32>),
    /// No token: the output is complete.
    Ended,
}

impl Mask {
    /// Returns the mask of one token of a vocabulary.
    #[must_use]
    pub fn only(id: u32, vocabulary: usize) -> Self {
        let mut mask = Self::Tokens(vec![0; vocabulary.div_ceil(32)]);
        mask.add(&[id]);
        mask
    }

    /// Adds tokens that may follow. No effect if the output is complete.
    pub fn add(&mut self, ids: &[u32]) {
        let Self::Tokens(words) = self else { return };
        for id in ids {
            if let Some(word) = words.get_mut(*id as usize / 32) {
                *word |= 1 << (id % 32);
            }
        }
    }

    /// Excludes all other tokens.
    pub fn apply(&self, logits: &mut [f32]) {
        let Self::Tokens(words) = self else { return };
        tandem_kernels::vocab::mask(logits, words);
    }
}

/// Why the tokens that may follow are not known. The output cannot continue.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MaskError {
    /// The grammar needs more memory or time than a step may cost.
    #[error("the grammar is too costly: {0}")]
    Limit(String),
    /// The library failed.
    #[error("{0}")]
    Failed(String),
}

impl MaskError {
    fn new(reason: StopReason, problem: String) -> Self {
        match reason {
            StopReason::LexerTooComplex | StopReason::ParserTooComplex => Self::Limit(problem),
            _ => Self::Failed(problem),
        }
    }
}

/// A compiled grammar. Cheap to clone.
#[derive(Clone)]
pub struct Compiled {
    /// As the request states it.
    pub source: Arc<Grammar>,
    /// The state before the first token.
    parser: Arc<Mutex<TokenParser>>,
    workers: Arc<Workers>,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

impl Compiled {
    pub(super) fn new(source: &Grammar, parser: Arc<Mutex<TokenParser>>, workers: Arc<Workers>) -> Self {
        Self { source: Arc::new(source.clone()), parser, workers }
    }

    /// Returns the grammar after these tokens.
    ///
    /// # Errors
    /// The tokens do not follow the grammar, or complete it, or following them takes too long.
    pub(super) fn after(&self, generated: &[u32]) -> Result<Self, RequestError> {
        let refused = |problem: &str| RequestError::invalid("resume.generated_tokens", problem);
        let mut parser = self.parser.lock().deep_clone();
        let start = Instant::now();
        for &token in generated {
            consume(&mut parser, token).map_err(|_| refused("must follow the grammar"))?;
            if start.elapsed() > MAX_RESUME_TIME {
                return Err(refused("are too many to follow the grammar with"));
            }
        }
        match parser.stop_reason() {
            StopReason::NotStopped => Ok(Self { parser: Arc::new(Mutex::new(parser)), ..self.clone() }),
            _ => Err(refused("must not be an output that has ended")),
        }
    }
}

/// The grammar of one output whose tokens an engine in another process chooses.
pub struct Follower {
    /// None after a token that the grammar does not allow, or whose cost is over a limit.
    parser: Option<Box<TokenParser>>,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Follower")
    }
}

/// The effect of a token on the text of a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// More may follow.
    Continues,
    /// It completes the text: nothing may follow.
    Completes,
    /// The grammar does not allow it.
    Refused,
}

impl Follower {
    /// Starts before the first token.
    #[must_use]
    pub fn new(grammar: &Compiled) -> Self {
        Self { parser: Some(Box::new(grammar.parser.lock().deep_clone())) }
    }

    /// Adds the next token. `is_end`: it is an end token of the model, which may only follow a whole text.
    pub fn push(&mut self, token: u32, is_end: bool) -> Followed {
        let Some(mut parser) = self.parser.take() else { return Followed::Continues };
        if is_end {
            return if is_accepting(&mut parser) { Followed::Completes } else { Followed::Refused };
        }
        match guarded(&mut parser, |parser| parser.validate_tokens_raw(&[token])) {
            Ok(0) => return Followed::Refused,
            Ok(_) if consume(&mut parser, token).is_ok() => {}
            // A limit of this library. Whether the engine has it too is not known.
            Ok(_) | Err(_) => return Followed::Continues,
        }
        if is_complete(&parser) {
            return Followed::Completes;
        }
        self.parser = Some(parser);
        Followed::Continues
    }

    /// Returns true if the text may end here. Also if that is not known, after a token whose cost is over a limit.
    pub fn is_whole(&mut self) -> bool {
        self.parser.as_deref_mut().is_none_or(is_accepting)
    }
}

/// Returns true if the text may end here, as far as the library can say.
fn is_accepting(parser: &mut TokenParser) -> bool {
    guarded(parser, |parser| Ok::<_, String>(parser.is_accepting())).unwrap_or(true)
}

/// The grammar of one output, with its state.
pub struct Constraint {
    workers: Arc<Workers>,
    caller: Arc<str>,
    state: State,
}

enum State {
    /// A worker computes the next mask.
    Computing(Receiver<Done>),
    /// The mask is computed.
    Computed(Done),
    /// The mask is returned, and the next token is not chosen yet.
    Idle(Box<TokenParser>),
    /// The output cannot continue.
    Failed(MaskError),
}

/// A worker's result: the state after the token, and the tokens that may follow.
type Done = Result<(Box<TokenParser>, Mask), MaskError>;

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}

impl Constraint {
    /// Starts an output of the caller: a worker computes its first mask.
    #[must_use]
    pub fn start(grammar: &Compiled, caller: &Arc<str>) -> Self {
        let workers = Arc::clone(&grammar.workers);
        let state = workers.send(caller, MaskInput::Start(Arc::clone(&grammar.parser)));
        Self { workers, caller: Arc::clone(caller), state }
    }

    /// Adds the chosen token. A worker computes the next mask.
    pub fn advance(&mut self, token: u32) {
        self.state = match self.take() {
            State::Idle(parser) => self.workers.send(&self.caller, MaskInput::Token(parser, token)),
            other => other,
        };
    }

    /// Adds the last token. Returns true if the output is complete with it.
    pub fn completes_with(&mut self, token: u32) -> bool {
        let State::Idle(mut parser) = self.take() else { return false };
        consume(&mut parser, token).is_ok() && is_complete(&parser)
    }

    /// Waits for the worker. Returns false if the mask is not computed at that time.
    pub fn is_computed_by(&mut self, time: Instant) -> bool {
        let State::Computing(done) = &self.state else { return true };
        let done = match done.recv_timeout(time.saturating_duration_since(Instant::now())) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => Err(failed("the grammar's worker is gone")),
        };
        self.state = State::Computed(done);
        true
    }

    /// Returns the tokens that may follow, once they are computed. [`Self::advance`] must be called
    /// between two calls. An error is returned by later calls too: a step that is tried again asks again.
    ///
    /// # Errors
    /// The grammar exceeds a limit, or the library failed.
    pub fn mask(&mut self) -> Result<Mask, MaskError> {
        match self.take() {
            State::Computed(Ok((parser, mask))) => {
                self.state = State::Idle(parser);
                Ok(mask)
            }
            State::Computed(Err(error)) | State::Failed(error) => {
                self.state = State::Failed(error.clone());
                Err(error)
            }
            State::Computing(_) | State::Idle(_) => Err(failed("the grammar's state is lost")),
        }
    }

    /// Takes the state. Until it is replaced, it is lost.
    fn take(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Failed(failed("the grammar's state is lost")))
    }
}

fn failed(problem: &str) -> MaskError {
    MaskError::Failed(problem.to_owned())
}

/// Threads that compute masks. They end when this is dropped.
pub(super) struct Workers {
    jobs: Arc<Jobs<Job>>,
}

struct Job {
    input: MaskInput,
    done: Sender<Done>,
}

/// The state that a mask is computed for.
enum MaskInput {
    Start(Arc<Mutex<TokenParser>>),
    Token(Box<TokenParser>, u32),
}

impl Workers {
    pub(super) fn start() -> Self {
        let jobs = Arc::<Jobs<Job>>::default();
        let start = || {
            let jobs = Arc::clone(&jobs);
            let started = thread::Builder::new().name("grammar".into()).spawn(move || work(&jobs));
            started.inspect_err(|error| tracing::error!(%error, "a grammar worker cannot be started")).is_ok()
        };
        if (0..MASK_THREADS).filter(|_| start()).count() == 0 {
            jobs.close();
        }
        Self { jobs }
    }

    fn send(&self, caller: &Arc<str>, input: MaskInput) -> State {
        let (done, answer) = mpsc::channel();
        self.jobs.push(caller, Job { input, done });
        State::Computing(answer)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

fn work(jobs: &Jobs<Job>) {
    while let Some(Job { input, done }) = jobs.pop() {
        let _ = done.send(follow(input)); // the output may have ended
    }
}

fn follow(input: MaskInput) -> Done {
    let parser = match input {
        MaskInput::Start(parser) => Box::new(parser.lock().deep_clone()),
        MaskInput::Token(mut parser, token) => {
            consume(&mut parser, token)?;
            parser
        }
    };
    may_follow(parser)
}

fn consume(parser: &mut TokenParser, token: u32) -> Result<(), MaskError> {
    guarded(parser, |parser| parser.consume_token(token).and_then(|_| parser.check_stop())).map(drop)
}

fn may_follow(mut parser: Box<TokenParser>) -> Done {
    if is_complete(&parser) {
        return Ok((parser, Mask::Ended));
    }
    match parser.stop_reason() {
        StopReason::NotStopped => {}
        reason => return Err(MaskError::new(reason, reason.to_string())),
    }
    let mask = guarded(&mut parser, TokenParser::compute_mask)?;
    Ok((parser, Mask::Tokens(mask.as_slice().to_vec())))
}

fn is_complete(parser: &TokenParser) -> bool {
    let reason = parser.stop_reason();
    reason != StopReason::NotStopped && reason.is_ok()
}

/// Calls the library, which may panic.
fn guarded<T, E: fmt::Display>(
    parser: &mut TokenParser,
    call: impl FnOnce(&mut TokenParser) -> Result<T, E>,
) -> Result<T, MaskError> {
    match catch_unwind(AssertUnwindSafe(|| call(parser))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(MaskError::new(parser.stop_reason(), error.to_string())),
        Err(_) => Err(MaskError::Failed("the grammar library panicked".to_owned())),
    }
}
