//! The grammar of one output while it is generated.

use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use llguidance::Matcher;
use llguidance::api::StopReason;

/// Threads that work out masks. The model's own threads are busy meanwhile.
const WORKERS: usize = 2;

/// Which tokens may come next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mask {
    /// Those whose bit is set.
    Tokens(Vec<u32>),
    /// None: the output is whole.
    Ended,
}

impl Mask {
    /// Makes all other tokens impossible.
    pub fn apply(&self, logits: &mut [f32]) {
        let Self::Tokens(words) = self else { return };
        for (id, logit) in logits.iter_mut().enumerate() {
            let is_allowed = words.get(id / 32).is_some_and(|word| word >> (id % 32) & 1 == 1);
            if !is_allowed {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

/// What allows the tokens of one output.
pub struct Constraint {
    workers: Arc<Workers>,
    state: State,
}

enum State {
    /// No mask has been asked for.
    Idle(Box<Matcher>),
    /// A worker has it.
    Away(Receiver<Done>),
    /// It is lost: the library failed.
    Failed,
}

/// A worker's answer: the state after the token, and what may follow.
type Done = Result<(Box<Matcher>, Mask), String>;

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}

impl Constraint {
    pub(super) fn new(matcher: Matcher, workers: Arc<Workers>) -> Self {
        Self { workers, state: State::Idle(Box::new(matcher)) }
    }

    /// The same, for another output. None once a mask was asked for.
    #[must_use]
    pub fn copy(&self) -> Option<Self> {
        match &self.state {
            State::Idle(matcher) => Some(Self::new(matcher.deep_clone(), Arc::clone(&self.workers))),
            State::Away(_) | State::Failed => None,
        }
    }

    /// Lets a worker find out what may come first.
    #[must_use]
    pub fn begun(mut self) -> Self {
        self.advance(None);
        self
    }

    /// Notes the token that was chosen, if any was yet, and lets a worker find out what may follow it.
    pub fn advance(&mut self, token: Option<u32>) {
        self.state = match std::mem::replace(&mut self.state, State::Failed) {
            State::Idle(matcher) => self.workers.send(matcher, token),
            other => other,
        };
    }

    /// What may come next. Waits for the worker. [`Self::advance`] must have been called since the last time.
    ///
    /// # Errors
    /// Why that cannot be told. The output cannot go on.
    pub fn mask(&mut self) -> Result<Mask, String> {
        let State::Away(done) = std::mem::replace(&mut self.state, State::Failed) else {
            return Err("the grammar's state is lost".to_owned());
        };
        let (matcher, mask) = done.recv().map_err(|_| "the grammar's worker is gone".to_owned())??;
        self.state = State::Idle(matcher);
        Ok(mask)
    }
}

/// Threads that work out masks. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Workers {
    jobs: Sender<Job>,
}

struct Job {
    matcher: Box<Matcher>,
    token: Option<u32>,
    done: Sender<Done>,
}

impl Workers {
    pub(super) fn start() -> Self {
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..WORKERS {
            let queue = Arc::clone(&queue);
            let started = thread::Builder::new().name("grammar".into()).spawn(move || work(&queue));
            if let Err(error) = started {
                tracing::error!(%error, "a grammar worker cannot be started");
            }
        }
        Self { jobs }
    }

    fn send(&self, matcher: Box<Matcher>, token: Option<u32>) -> State {
        let (done, answer) = mpsc::channel();
        match self.jobs.send(Job { matcher, token, done }) {
            Ok(()) => State::Away(answer),
            Err(_) => State::Failed,
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { mut matcher, token, done }) = job else { return };
        let mask = follow(&mut matcher, token);
        let _ = done.send(mask.map(|mask| (matcher, mask))); // its output may have ended meanwhile
    }
}

fn follow(matcher: &mut Matcher, token: Option<u32>) -> Result<Mask, String> {
    if let Some(token) = token {
        matcher.consume_token(token).map_err(|error| error.to_string())?;
    }
    match matcher.stop_reason() {
        StopReason::NotStopped => {}
        reason if reason.is_ok() => return Ok(Mask::Ended),
        reason => return Err(reason.to_string()),
    }
    let mask = matcher.compute_mask().map_err(|error| error.to_string())?;
    Ok(Mask::Tokens(mask.as_slice().to_vec()))
}
