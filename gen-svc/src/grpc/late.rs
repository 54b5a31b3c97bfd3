//! The end of a stream at its deadline while the engine computes a step.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tandem_core::answer::{Accepted, Delta, Event, FinishReason, Finished, RequestProgress, Summary, Timings};
use tandem_core::error::RequestError;
use tandem_core::output::TextSegment;
use tandem_core::output::extract::Rules;
use tandem_core::request::GenerateRequest;
use tokio::time::{Sleep, sleep_until};

/// The events that a stream has sent, to end it without the engine.
#[derive(Debug)]
pub(super) struct LateEnd {
    timer: Option<Pin<Box<Sleep>>>,
    progress: Arc<RequestProgress>,
    /// The rules of the extracted text, if it is requested.
    rules: Option<Rules>,
    started: Option<Started>,
}

#[derive(Debug)]
struct Started {
    accepted: Accepted,
    at: Instant,
    /// The times of the first and the last delta.
    deltas: Option<(Instant, Instant)>,
    /// The outputs that have not ended, with their text if there are rules for it.
    outputs: BTreeMap<u32, Vec<TextSegment>>,
}

impl LateEnd {
    /// Creates the end of a request's stream at `time`.
    pub(super) fn new(time: Option<Instant>, request: &GenerateRequest, progress: Arc<RequestProgress>) -> Self {
        // The text before a resume is known to the engine only.
        let has_rules = request.returns.extracted_text && request.resume.is_none();
        Self {
            timer: time.map(|time| Box::pin(sleep_until(time.into()))),
            progress,
            rules: has_rules.then(|| request.output_spec.extraction.clone()),
            started: None,
        }
    }

    /// Adds an event. `first`: the index of the request's first output.
    pub(super) fn add(&mut self, event: &Event, first: u32) {
        let (now, keeps_text) = (Instant::now(), self.rules.is_some());
        match (event, &mut self.started) {
            (Event::Accepted(accepted), started) => {
                let outputs = (first..first + accepted.sampling.n).map(|output| (output, Vec::new())).collect();
                *started = Some(Started { accepted: accepted.clone(), at: now, deltas: None, outputs });
            }
            (Event::Delta(delta), Some(started)) => {
                started.deltas = Some((started.deltas.map_or(now, |(first, _)| first), now));
                if let Some(text) = started.outputs.get_mut(&delta.output).filter(|_| keeps_text) {
                    text.extend(delta.segments.iter().cloned());
                }
            }
            (Event::Finished(finished), Some(started)) => drop(started.outputs.remove(&finished.last.output)),
            _ => {}
        }
    }

    /// Returns the last events, once the time has come. Text that the engine holds back is not in them.
    ///
    /// # Errors
    /// The request waits in the queue.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Event>, RequestError>> {
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        ready!(timer.as_mut().poll(context));
        let Some(Started { accepted, at, deltas, outputs }) = self.started.take() else {
            return Poll::Ready(Err(RequestError::DeadlineInQueue));
        };
        let end = |(output, text): (u32, Vec<TextSegment>)| {
            Event::Finished(Finished {
                last: Delta { output, ..Delta::default() },
                reason: FinishReason::Deadline,
                matched: None,
                extracted_text: self.rules.as_ref().map(|rules| rules.apply(&text)),
                grammar_not_reached: false,
            })
        };
        let (first, last) = deltas.unwrap_or_else(|| (Instant::now(), Instant::now()));
        let summary = Event::Summary(Summary {
            prompt_tokens: accepted.prompt_tokens,
            cached_tokens: accepted.cached_tokens,
            image_tokens: accepted.image_tokens,
            completion_tokens: self.progress.completion_tokens(),
            timings: Timings { queue: accepted.queue, prefill: first - at, decode: last - first },
            seed: accepted.sampling.seed,
        });
        Poll::Ready(Ok(outputs.into_iter().map(end).chain([summary]).collect()))
    }
}
