//! The grammar of one output while it is generated.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use llguidance::Matcher;
use llguidance::api::StopReason;
use parking_lot::Mutex;

use crate::error::Error;

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
    /// Excludes all other tokens.
    pub fn apply(&self, logits: &mut [f32]) {
        let Self::Tokens(words) = self else { return };
        tandem_kernels::vocab::mask(logits, words);
    }
}

/// A compiled grammar. Cheap to clone.
#[derive(Clone)]
pub struct Compiled {
    /// The state before the first token.
    matcher: Arc<Mutex<Matcher>>,
    workers: Arc<Workers>,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

impl Compiled {
    pub(super) fn new(matcher: Arc<Mutex<Matcher>>, workers: Arc<Workers>) -> Self {
        Self { matcher, workers }
    }

    /// Returns the grammar after these tokens.
    ///
    /// # Errors
    /// The tokens do not follow the grammar, or complete it, or following them takes too long.
    pub(super) fn after(&self, generated: &[u32]) -> Result<Self, Error> {
        let refused = |problem: &str| Error::invalid("resume.generated_tokens", problem);
        let mut matcher = self.matcher.lock().deep_clone();
        let start = Instant::now();
        for &token in generated {
            matcher.consume_token(token).map_err(|_| refused("must follow the grammar"))?;
            if start.elapsed() > MAX_RESUME_TIME {
                return Err(refused("are too many to follow the grammar with"));
            }
        }
        match matcher.stop_reason() {
            StopReason::NotStopped => {
                Ok(Self { matcher: Arc::new(Mutex::new(matcher)), workers: Arc::clone(&self.workers) })
            }
            _ => Err(refused("must not be an output that has ended")),
        }
    }
}

/// The grammar of one output, with its state.
pub struct Constraint {
    workers: Arc<Workers>,
    state: State,
}

enum State {
    /// The mask is computed, and the next token is not chosen yet.
    Idle(Box<Matcher>),
    /// A worker computes the next mask.
    Computing(Receiver<Done>),
    /// The library failed, and the state is lost.
    Failed,
}

/// A worker's result: the state after the token, and the tokens that may follow.
type Done = Result<(Box<Matcher>, Mask), String>;

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}

impl Constraint {
    /// Starts an output: a worker computes its first mask.
    #[must_use]
    pub fn start(grammar: &Compiled) -> Self {
        let workers = Arc::clone(&grammar.workers);
        let state = workers.send(MaskInput::Start(Arc::clone(&grammar.matcher)));
        Self { workers, state }
    }

    /// Adds the chosen token. A worker computes the next mask.
    pub fn advance(&mut self, token: u32) {
        self.state = match std::mem::replace(&mut self.state, State::Failed) {
            State::Idle(matcher) => self.workers.send(MaskInput::Token(matcher, token)),
            other => other,
        };
    }

    /// Waits for the worker, and returns the tokens that may follow. [`Self::advance`] must be
    /// called between two calls.
    ///
    /// # Errors
    /// The library's message. The output cannot continue.
    pub fn mask(&mut self) -> Result<Mask, String> {
        let State::Computing(done) = std::mem::replace(&mut self.state, State::Failed) else {
            return Err("the grammar's state is lost".to_owned());
        };
        let (matcher, mask) = done.recv().map_err(|_| "the grammar's worker is gone".to_owned())??;
        self.state = State::Idle(matcher);
        Ok(mask)
    }
}

/// Threads that compute masks. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Workers {
    jobs: Sender<Job>,
}

struct Job {
    input: MaskInput,
    done: Sender<Done>,
}

/// The state that a mask is computed for.
enum MaskInput {
    Start(Arc<Mutex<Matcher>>),
    Token(Box<Matcher>, u32),
}

impl Workers {
    pub(super) fn start() -> Self {
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..MASK_THREADS {
            let queue = Arc::clone(&queue);
            let started = thread::Builder::new().name("grammar".into()).spawn(move || work(&queue));
            if let Err(error) = started {
                tracing::error!(%error, "a grammar worker cannot be started");
            }
        }
        Self { jobs }
    }

    fn send(&self, input: MaskInput) -> State {
        let (done, answer) = mpsc::channel();
        match self.jobs.send(Job { input, done }) {
            Ok(()) => State::Computing(answer),
            Err(_) => State::Failed,
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().recv();
        let Ok(Job { input, done }) = job else { return };
        let _ = done.send(follow(input)); // the output may have ended
    }
}

fn follow(input: MaskInput) -> Done {
    let matcher = match input {
        MaskInput::Start(matcher) => Box::new(matcher.lock().deep_clone()),
        MaskInput::Token(mut matcher, token) => {
            matcher.consume_token(token).map_err(|error| error.to_string())?;
            matcher
        }
    };
    may_follow(matcher)
}

fn may_follow(mut matcher: Box<Matcher>) -> Done {
    match matcher.stop_reason() {
        StopReason::NotStopped => {}
        reason if reason.is_ok() => return Ok((matcher, Mask::Ended)),
        reason => return Err(reason.to_string()),
    }
    let mask = matcher.compute_mask().map_err(|error| error.to_string())?;
    Ok((matcher, Mask::Tokens(mask.as_slice().to_vec())))
}
