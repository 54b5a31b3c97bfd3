//! Prepares requests and submits them to the engine.
//!
//! A long preparation would delay the other calls of an async thread, so it has a thread of the
//! blocking pool. A short one runs at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use std::time::Instant;

use tandem_common::fair_queue::{FairQueue, Place};
use tandem_common::permits::{Exhausted, Permit, Permits};
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

/// The concurrent preparations. Each caller has its turn.
static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    let [usual, long, grammars, costly] =
        [cores, cores - 1, grammar::MAX_COMPILING, grammar::MAX_COMPILING].map(FairQueue::new);
    Places { usual, long, grammars, costly, queued_grammars: Permits::new(MAX_QUEUED_GRAMMARS) }
});

/// The most requests whose grammars are compiled or wait for it. A quarter is kept back from any one
/// caller.
const MAX_QUEUED_GRAMMARS: usize = 64;

struct Places {
    /// As many as cores.
    usual: FairQueue,
    /// One less, so that others do not wait for long prompts.
    long: FairQueue,
    /// For requests whose grammar takes work, which others do not wait for.
    grammars: FairQueue,
    /// For those whose grammar may be costly, which other grammars do not wait for.
    costly: FairQueue,
    queued_grammars: Permits,
}

impl Places {
    /// Returns the places of requests without work for a grammar.
    fn by_size(&self, is_long: bool) -> &FairQueue {
        if is_long { &self.long } else { &self.usual }
    }

    /// Waits for a place. Returns it with the permit of its grammar, if that takes work.
    async fn take(
        &self,
        request: &GenerateRequest,
        model: &ServedModel,
    ) -> Result<(Place, Option<Permit>), RequestError> {
        let work = request.grammar_work(model);
        let queue = match work {
            Some(GrammarWork::Costly) => &self.costly,
            Some(GrammarWork::Usual) => &self.grammars,
            None => self.by_size(request.has_long_prompt()),
        };
        let permit = work.map(|_| self.queue_grammar(&request.caller)).transpose()?;
        Ok((queue.place(&request.caller).await, permit))
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

/// Reads the input of a request, in the caller's turn.
async fn read_input(Draft { mut request, unread }: Draft) -> Result<GenerateRequest, RequestError> {
    let Some(UnreadInput { bytes, read }) = unread else { return Ok(request) };
    let is_long = is_long(bytes);
    let place = PLACES.by_size(is_long).place(&request.caller).await;
    let span = Span::current();
    let read = move || {
        let _place = place;
        span.part("read input", || []).in_scope(read)
    };
    request.input = thread_priority::spawn_work(is_long, read).await.map_err(|_| RequestError::EngineFailed)??;
    Ok(request)
}

/// The most requests whose images are fetched or, after that, prepared.
const FETCHES: usize = 8;
/// The most of them of one caller, whose images may come slowly.
const CALLER_FETCHES: usize = FETCHES * 3 / 4;
static FETCH_PLACES: LazyLock<FairQueue> = LazyLock::new(|| FairQueue::with_share(FETCHES, CALLER_FETCHES));

/// Fetches the images of a request. The place limits the memory of fetched images until they are
/// prepared.
async fn fetch_images(
    engine: &Engine,
    mut request: GenerateRequest,
) -> Result<(GenerateRequest, Option<Place>), RequestError> {
    if !request.must_fetch(engine.model()) {
        return Ok((request, None));
    }
    let place = FETCH_PLACES.place(&request.caller).await;
    let (engine, span) = (engine.clone(), Span::current());
    let fetch = move || {
        span.part("fetch images", || []).in_scope(|| request.fetch_images(engine.model()))?;
        Ok((request, Some(place)))
    };
    tokio::task::spawn_blocking(fetch).await.map_err(|_| RequestError::EngineFailed)?
}

/// Prepares a request and submits it. Returns its events. The engine reports to `progress`.
///
/// # Errors
/// The queue is full, or that of grammars; requests are not accepted; the request is invalid for the
/// model; or its preparation panicked.
pub(crate) async fn submit(
    engine: &Engine,
    draft: Draft,
    deadline: Option<Instant>,
    progress: Arc<RequestProgress>,
) -> Result<Receiver<Event>, RequestError> {
    let slot = engine.reserve(&draft.request.caller)?;
    let (request, fetched) = fetch_images(engine, read_input(draft).await?).await?;
    let (span, is_short, is_long) = (Span::current(), request.is_short(), request.has_long_prompt());
    let place = match is_short {
        true => None,
        false => Some(PLACES.take(&request, engine.model()).await?),
    };
    let engine = engine.clone();
    let cancelled = CancellationToken::new();
    let _gone = cancelled.clone().drop_guard();
    let submit = move || {
        let (_entered, _place, _scope) = (span.enter(), (place, fetched), CancelScope::start(cancelled));
        let prepared = span.part("prepare", || []).in_scope(|| request.prepare(engine.model()))?;
        engine.submit_to(slot, prepared, deadline, progress)
    };
    if is_short {
        catch_unwind(AssertUnwindSafe(submit)).map_err(|_| RequestError::EngineFailed)?
    } else {
        thread_priority::spawn_work(is_long, submit).await.map_err(|_| RequestError::EngineFailed)?
    }
}
