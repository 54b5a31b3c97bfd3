//! Greedy requests, and the answers of an engine.

use tandem_core::answer::{Event, FinishReason, Summary};
use tandem_core::engine::Engine;
use tandem_core::request::{GenerateRequest, Input, PreparedRequest, Returns, SamplingOptions, StopOptions};
use tokio::sync::mpsc::Receiver;

/// Returns a greedy request, prepared for an engine.
///
/// # Panics
/// If the request is invalid.
#[must_use]
pub fn greedy(engine: &Engine, prompt: &[u32], max_new_tokens: u32) -> PreparedRequest {
    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(max_new_tokens), ..StopOptions::default() },
        returns: Returns { token_ids: true, ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds(prompt.to_vec()))
    };
    request.prepare(engine.model()).expect("a valid request")
}

/// An output, joined from its events.
#[derive(Debug)]
pub struct Answer {
    /// The tokens.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub reason: FinishReason,
    /// The request's last event.
    pub summary: Summary,
}

/// Reads an output to the end.
///
/// # Panics
/// If the request fails.
pub fn finish(events: &mut Receiver<Event>) -> Answer {
    let mut outputs = finish_all(events, 1);
    outputs.pop().expect("one")
}

/// Reads `count` outputs to the end.
///
/// # Panics
/// If the request fails.
pub fn finish_all(events: &mut Receiver<Event>, count: usize) -> Vec<Answer> {
    let mut ids = vec![Vec::new(); count];
    let mut reasons = vec![None; count];
    loop {
        match events.blocking_recv().expect("an end") {
            Event::Accepted(_) | Event::PromptLogprobs(_) => {}
            Event::Delta(delta) => ids[delta.output as usize].extend(delta.token_ids),
            Event::Finished(end) => {
                ids[end.last.output as usize].extend(&end.last.token_ids);
                reasons[end.last.output as usize] = Some(end.reason);
            }
            Event::Summary(summary) => {
                let answer = |(ids, reason): (Vec<u32>, Option<FinishReason>)| Answer {
                    ids,
                    reason: reason.expect("each output has ended before the summary"),
                    summary: summary.clone(),
                };
                return ids.into_iter().zip(reasons).map(answer).collect();
            }
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        }
    }
}
