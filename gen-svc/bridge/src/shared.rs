//! The state that the tasks of an engine share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tandem_core::answer::{CheckedAnswer, Contradiction};
use tandem_core::engine::EngineLimits;
use tandem_core::lifecycle::Lifecycle;
use tandem_core::request::ServedModel;
use tokio_util::sync::CancellationToken;

use crate::call::CallError;
use crate::kind::EngineKind;
use crate::lack::Lack;
use crate::protocol::{Facts, Load, Protocol};
use crate::turns::Turns;

/// How long an engine may not answer before its running requests end, so that other replicas resume them.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// How long an engine that answers may show no work on its requests.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// The tokens per second of an engine whose work is not seen, at least.
const SLOWEST: u64 = 20;

/// Why a request cannot be completed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error(transparent)]
    Engine(#[from] CallError),
    #[error("engine contradicts the request: {0}")]
    Contradiction(#[from] Contradiction),
}

/// The parts of the state that are made before it.
pub struct Parts {
    /// The kind of engine, with its lacks.
    pub kind: &'static EngineKind,
    /// The protocol, connected.
    pub protocol: Arc<dyn Protocol>,
    /// The model, from the bridge's files and the engine's facts.
    pub model: ServedModel,
    /// The engine's report of itself, from its proof.
    pub facts: Facts,
    /// The limits. The engine generates `max_running` outputs at once.
    pub limits: EngineLimits,
    /// How long a caller may leave its events unread.
    pub patience: Duration,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("kind", &self.kind.flag).finish_non_exhaustive()
    }
}

/// The state that the tasks of an engine share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) kind: &'static EngineKind,
    pub(crate) protocol: Arc<dyn Protocol>,
    pub(crate) model: ServedModel,
    pub(crate) lifecycle: Lifecycle,
    /// Cancelled when running requests end.
    pub(crate) stop: CancellationToken,
    /// How long a caller may leave its events unread.
    pub(crate) patience: Duration,
    pub(crate) limits: EngineLimits,
    pub(crate) facts: Mutex<Facts>,
    pub(crate) load: Mutex<Load>,
    pub(crate) turns: Mutex<Turns<CheckedAnswer>>,
    life: Life,
    pub(crate) tokens: AtomicU64,
}

/// When the engine last gave a sign of life.
#[derive(Debug)]
struct Life {
    origin: Instant,
    /// Its last answer, in milliseconds from `origin`.
    beat: AtomicU64,
    /// Its last sign of work, or its last look without a request, in milliseconds from `origin`.
    work: AtomicU64,
    /// The tokens of the running requests: of their prompts, and the most of their outputs.
    tokens: AtomicU64,
    /// True from the first look that finds no engine until it is proven again.
    is_gone: AtomicBool,
}

impl Life {
    fn new() -> Self {
        let (beat, work, tokens) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { origin: Instant::now(), beat, work, tokens, is_gone: AtomicBool::new(false) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn since(&self, sign: &AtomicU64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(sign.load(Ordering::Relaxed)))
    }

    /// `is_seen`: whether work shows in the engine's load. Else a long prompt is silent until its first token.
    fn is_stalled(&self, is_seen: bool) -> bool {
        let tokens = if is_seen { 0 } else { self.tokens.load(Ordering::Relaxed) };
        self.since(&self.work) > STALLED_AFTER + Duration::from_secs(tokens / SLOWEST)
    }
}

/// The tokens of a running request.
#[derive(Debug)]
pub(crate) struct RunningTokens<'a> {
    life: &'a Life,
    tokens: u64,
}

impl Drop for RunningTokens<'_> {
    fn drop(&mut self) {
        self.life.tokens.fetch_sub(self.tokens, Ordering::Relaxed);
    }
}

impl Shared {
    pub(crate) fn new(parts: Parts, lifecycle: Lifecycle) -> Self {
        let Parts { kind, protocol, model, facts, limits, patience } = parts;
        Self {
            kind,
            protocol,
            model,
            stop: lifecycle.cancellation(),
            lifecycle,
            patience,
            limits,
            facts: Mutex::new(facts),
            load: Mutex::default(),
            turns: Mutex::new(Turns::new(limits.max_running)),
            life: Life::new(),
            tokens: AtomicU64::new(0),
        }
    }

    /// Records that the engine answers.
    pub(crate) fn beat(&self) {
        self.life.beat.store(self.life.now(), Ordering::Relaxed);
    }

    /// Records that the engine works, or that it has no request of the bridge.
    pub(crate) fn record_work(&self) {
        self.life.work.store(self.life.now(), Ordering::Relaxed);
        self.beat();
    }

    /// Counts the tokens of a running request until the answer is dropped.
    pub(crate) fn count_running(&self, tokens: usize) -> RunningTokens<'_> {
        let tokens = tokens as u64;
        self.life.tokens.fetch_add(tokens, Ordering::Relaxed);
        RunningTokens { life: &self.life, tokens }
    }

    /// Returns true if the engine answers, and generates nothing.
    pub(crate) fn is_stalled(&self) -> bool {
        self.life.is_stalled(self.load.lock().shows_work())
    }

    /// Records whether the engine answers with the model of the bridge's files.
    pub(crate) fn set_gone(&self, is_gone: bool) {
        self.life.is_gone.store(is_gone, Ordering::Relaxed);
        if !is_gone {
            self.record_work();
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.life.is_gone.load(Ordering::Relaxed)
    }

    /// Returns true if the engine has not answered for so long that running requests end.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_gone() && self.age() > LOST_AFTER
    }

    pub(crate) fn age(&self) -> Duration {
        self.life.since(&self.life.beat)
    }

    /// Returns the fields that the engine lacks, always or with its settings.
    pub(crate) fn lacks(&self) -> Vec<&'static Lack> {
        self.kind.lacks.iter().chain(self.facts.lock().lacks.iter().copied()).collect()
    }

    pub(crate) fn set_facts(&self, facts: Facts) {
        *self.facts.lock() = facts;
    }

    pub(crate) fn facts(&self) -> Facts {
        self.facts.lock().clone()
    }

    /// Records the engine's load. While requests run, only a change shows work.
    pub(crate) fn set_load(&self, load: Load) {
        let before = std::mem::replace(&mut *self.load.lock(), load);
        if before != load {
            self.record_work();
        }
    }

    /// Counts generated tokens.
    pub(crate) fn count_tokens(&self, tokens: usize) {
        self.tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// Logs why a request failed. An engine's message may quote the request, so that only its kind is logged.
    pub(crate) fn report_problem(&self, problem: &Problem) {
        match problem {
            Problem::Engine(CallError::Rejected(_)) => {
                tracing::warn!(engine = self.kind.name, "engine rejected a request that the bridge accepts");
            }
            problem => tracing::error!(engine = self.kind.name, %problem, "request failed"),
        }
    }
}
