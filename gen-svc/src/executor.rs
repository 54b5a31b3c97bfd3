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
use crate::request::GenerateRequest;

/// The size in bytes from which a request takes long to prepare.
const LONG_BYTES: usize = 64 << 10;

/// The preparations at one time: as many as cores, and of the long ones one less, so that others do
/// not wait for them. Each caller has its turn.
static PLACES: LazyLock<[FairQueue; 2]> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    [cores, cores - 1].map(FairQueue::new)
});

/// The requests at one time whose images are fetched or, after that, prepared.
const FETCHES: usize = 8;
static FETCH_PLACES: LazyLock<FairQueue> = LazyLock::new(|| FairQueue::new(FETCHES));

fn places(size: usize) -> &'static FairQueue {
    &PLACES[usize::from(size >= LONG_BYTES)]
}

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
    let (span, is_short, size) = (Span::current(), request.is_short(), request.size());
    let place = match is_short {
        true => None,
        false => Some(places(size).place(&request.caller).await),
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
