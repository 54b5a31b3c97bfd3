//! Prepares requests and submits them to the engine.
//!
//! A long preparation would delay the other calls of an async thread, so it has a thread of the
//! blocking pool. A short one runs at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use std::time::Instant;

use tandem_common::fair_queue::{FairQueue, Place};
use tandem_common::telemetry::Span;
use tandem_model_files::tokenizer::CancelScope;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, Event, RequestProgress};
use crate::error::Error;
use crate::request::{GenerateRequest, ServedModel};

/// The preparations at one time. Each caller has its turn.
static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    let [usual, long, grammars] = [cores, cores - 1, COSTLY_GRAMMARS].map(FairQueue::new);
    Places { usual, long, grammars }
});

/// The costly grammars at one time that are compiled.
const COSTLY_GRAMMARS: usize = 2;

struct Places {
    /// As many as cores.
    usual: FairQueue,
    /// One less, so that others do not wait for long prompts.
    long: FairQueue,
    grammars: FairQueue,
}

impl Places {
    fn of(&self, request: &GenerateRequest, model: &ServedModel) -> &FairQueue {
        if request.has_costly_grammar(model) {
            &self.grammars
        } else if request.has_long_prompt() {
            &self.long
        } else {
            &self.usual
        }
    }
}

/// The requests at one time whose images are fetched or, after that, prepared.
const FETCHES: usize = 8;
static FETCH_PLACES: LazyLock<FairQueue> = LazyLock::new(|| FairQueue::new(FETCHES));

/// Fetches the images of a request. The place limits the memory of fetched images until they are
/// prepared.
async fn fetch_images(
    engine: &Engine,
    mut request: GenerateRequest,
) -> Result<(GenerateRequest, Option<Place>), Error> {
    if !request.must_fetch(engine.model()) {
        return Ok((request, None));
    }
    let place = FETCH_PLACES.place(&request.caller).await;
    let (engine, span) = (engine.clone(), Span::current());
    let fetch = move || {
        span.part("fetch images", || []).in_scope(|| request.fetch_images(engine.model()))?;
        Ok((request, Some(place)))
    };
    tokio::task::spawn_blocking(fetch).await.map_err(|_| Error::EngineFailed)?
}

/// Prepares a request and submits it. Returns its events. The engine reports to `progress`.
///
/// # Errors
/// The queue is full, requests are not accepted, the request is invalid for the model, or its
/// preparation panicked.
pub(crate) async fn submit(
    engine: &Engine,
    request: GenerateRequest,
    deadline: Option<Instant>,
    progress: Arc<RequestProgress>,
) -> Result<Receiver<Event>, Error> {
    let slot = engine.reserve(&request.caller)?;
    let (request, fetched) = fetch_images(engine, request).await?;
    let (span, is_short) = (Span::current(), request.is_short());
    let place = match is_short {
        true => None,
        false => Some(PLACES.of(&request, engine.model()).place(&request.caller).await),
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
        catch_unwind(AssertUnwindSafe(submit)).map_err(|_| Error::EngineFailed)?
    } else {
        tokio::task::spawn_blocking(submit).await.map_err(|_| Error::EngineFailed)?
    }
}
