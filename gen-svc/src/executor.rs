//! Prepares requests and submits them to the engine.
//!
//! A long preparation would delay the other calls of an async thread, so it has a thread of the
//! blocking pool. A short one runs at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use tandem_common::telemetry::Span;
use tokio::sync::mpsc::Receiver;

use crate::engine::{Engine, Event, RequestProgress};
use crate::error::Error;
use crate::request::GenerateRequest;

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
    let (engine, span, is_short) = (engine.clone(), Span::current(), request.is_short());
    let submit = move || {
        let _entered = span.enter();
        let prepared = span.part("prepare", || []).in_scope(|| request.prepare(engine.model()))?;
        engine.submit_to(slot, prepared, deadline, progress)
    };
    if is_short {
        catch_unwind(AssertUnwindSafe(submit)).map_err(|_| Error::EngineFailed)?
    } else {
        tokio::task::spawn_blocking(submit).await.map_err(|_| Error::EngineFailed)?
    }
}
