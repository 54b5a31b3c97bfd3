//! Prepares requests and submits them to the engine.
//!
//! A long preparation would delay the other calls of an async thread, so it has a thread of the
//! blocking pool. A short one runs at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use tandem_common::admission::{Exhausted, FairQueue, Permit, Permits};
use tandem_common::telemetry::Span;
use tandem_common::thread_priority;
use tandem_core::answer::{Event, RequestProgress};
use tandem_core::engine::Engine;
use tandem_core::error::RequestError;
use tandem_core::grammar;
use tandem_core::request::{GenerateRequest, GrammarWork, Input, ServedModel, is_long};
use tandem_model_files::tokenizer::CancelScope;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// The most requests whose grammars are compiled or wait for it. A quarter is kept back from any one
/// caller.
const MAX_QUEUED_GRAMMARS: usize = 64;
/// The most requests whose images may be fetched. Their places limit the memory of fetched images until
/// they are prepared.
const FETCHES: usize = 8;
/// The most of them of one caller, whose images may come slowly.
const CALLER_FETCHES: usize = FETCHES * 3 / 4;

/// Prepares requests for an engine. Clones share their places.
#[derive(Debug, Clone)]
pub(crate) struct Executor {
    engine: Engine,
    queues: Queues,
}

/// The places of requests, in turns of callers.
#[derive(Debug, Clone)]
struct Queues {
    /// As many as cores.
    usual: FairQueue,
    /// One less, so that others do not wait for long prompts.
    long: FairQueue,
    /// For requests whose grammar takes work, which others do not wait for.
    grammars: FairQueue,
    /// For those whose grammar may be costly, which other grammars do not wait for.
    costly: FairQueue,
    /// For requests that may have images at URLs, which others do not wait for.
    fetches: FairQueue,
    queued_grammars: Permits,
}

impl Queues {
    fn new() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let [usual, long, grammars, costly] =
            [cores, cores - 1, grammar::MAX_COMPILING, grammar::MAX_COMPILING].map(FairQueue::new);
        let fetches = FairQueue::with_share(FETCHES, CALLER_FETCHES);
        Self { usual, long, grammars, costly, fetches, queued_grammars: Permits::new(MAX_QUEUED_GRAMMARS) }
    }

    /// Returns the queue of a request, and the permit of its grammar, if that takes work.
    fn choose(&self, draft: &Draft, model: &ServedModel) -> Result<(&FairQueue, Option<Permit>), RequestError> {
        let Draft { request, unread } = draft;
        let work = request.grammar_work(model);
        let queue = match work {
            _ if unread.is_some() && model.fetches_images() => &self.fetches,
            Some(GrammarWork::Costly) => &self.costly,
            Some(GrammarWork::Usual) => &self.grammars,
            None if draft.is_long() => &self.long,
            None => &self.usual,
        };
        let permit = work.map(|_| self.queue_grammar(&request.caller)).transpose()?;
        Ok((queue, permit))
    }

    fn queue_grammar(&self, caller: &Arc<str>) -> Result<Permit, RequestError> {
        let queued = &self.queued_grammars;
        queued.acquire(caller).map_err(|exhausted| match exhausted {
            Exhausted::All => RequestError::GrammarQueueFull { limit: queued.limit() },
            Exhausted::OfCaller => RequestError::GrammarShareFull { limit: queued.limit_per_caller() },
        })
    }
}

/// A request before its input is read.
pub(crate) struct Draft {
    /// The request. Its input is empty if it is not read yet.
    pub(crate) request: GenerateRequest,
    /// The input, if reading it takes long.
    pub(crate) unread: Option<UnreadInput>,
}

/// An input that takes long to read.
pub(crate) struct UnreadInput {
    /// About its size.
    pub(crate) bytes: usize,
    /// Reads it. Blocks.
    pub(crate) read: Box<dyn FnOnce() -> Result<Input, RequestError> + Send>,
}

impl Draft {
    fn is_short(&self) -> bool {
        self.unread.is_none() && self.request.is_short()
    }

    fn is_long(&self) -> bool {
        self.unread.as_ref().map_or(self.request.has_long_prompt(), |unread| is_long(unread.bytes))
    }

    /// Reads the input, and fetches its images. Blocks.
    fn read(self, span: &Span, model: &ServedModel) -> Result<GenerateRequest, RequestError> {
        let Self { mut request, unread } = self;
        if let Some(UnreadInput { read, .. }) = unread {
            request.input = span.part("read input", || []).in_scope(read)?;
        }
        if model.fetches_images() {
            span.part("fetch images", || []).in_scope(|| request.fetch_images(model))?;
        }
        Ok(request)
    }
}

impl Executor {
    /// Prepares requests for this engine.
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, queues: Queues::new() }
    }

    /// Returns the engine.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Prepares a request and submits it. Returns its events. The engine reports to `progress`.
    ///
    /// # Errors
    /// The queue is full, or that of grammars; requests are not accepted; the request is invalid for the
    /// model; or its preparation panicked.
    pub(crate) async fn submit(
        self,
        draft: Draft,
        deadline: Option<Instant>,
        progress: Arc<RequestProgress>,
    ) -> Result<Receiver<Event>, RequestError> {
        let Self { engine, queues } = self;
        let slot = engine.reserve(&draft.request.caller)?;
        let (span, is_short, is_long) = (Span::current(), draft.is_short(), draft.is_long());
        let mut place = None;
        if !is_short {
            let (queue, permit) = queues.choose(&draft, engine.model())?;
            let caller = Arc::clone(&draft.request.caller);
            place = Some((queue.place(&caller).await, permit));
        }
        let cancelled = CancellationToken::new();
        let _gone = cancelled.clone().drop_guard();
        let submit = move || {
            let (_entered, _place, _scope) = (span.enter(), place, CancelScope::start(cancelled));
            let request = draft.read(&span, engine.model())?;
            let prepared = span.part("prepare", || []).in_scope(|| request.prepare(engine.model()))?;
            engine.submit_to(slot, prepared, deadline, progress)
        };
        if is_short {
            catch_unwind(AssertUnwindSafe(submit)).map_err(|_| RequestError::EngineFailed)?
        } else {
            thread_priority::spawn_work(is_long, submit).await.map_err(|_| RequestError::EngineFailed)?
        }
    }
}
