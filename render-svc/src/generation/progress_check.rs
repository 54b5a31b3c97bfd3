//! Detects a replica whose engine is stuck, or whose `progress` events come from no work.

use std::time::Duration;

use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::{Progress, PromptLogprobs};
use tandem_common::timing::SLOW_STEP;
use tokio::time::Instant;

use super::failure::{faulty, stuck};
use crate::task::generator::GenerationError;

/// Longest wait for the summary after the output's end. Nothing is left to compute.
const MAX_SUMMARY_WAIT: Duration = Duration::from_secs(10);
/// How many times longer the place in the queue may not improve. It does not while the outputs before it run.
const QUEUE_STALLS: u32 = 6;
/// Longest time without a better place in the queue if another replica accepts tasks.
const MAX_QUEUE_STALL: Duration = Duration::from_secs(60);
/// Most `progress` events for each second since the start of the call. A server sends one a second. The
/// rate since the start is used because a caller that reads slowly gets many events at once.
const MAX_PER_SECOND: u64 = 100;

/// The progress that a call has reported.
#[derive(Debug)]
pub(super) struct ProgressCheck {
    /// Longest time in which an output outside of the queue may have no advance.
    max_stall: Duration,
    start: Instant,
    count: u64,
    computed_prompt_tokens: u32,
    /// True if the last event had a place in the queue.
    is_queued: bool,
    /// The best place in the queue so far.
    best_place: u32,
    /// Those of the prompt, once the request is accepted.
    prompt_tokens: Option<u32>,
    has_finished: bool,
    /// Time of waits for events since the last advance.
    stalled: Duration,
    /// Time of waits for events since the last better place in the queue.
    queued: Duration,
}

impl ProgressCheck {
    pub(super) fn new(max_stall: Duration) -> Self {
        Self {
            max_stall,
            start: Instant::now(),
            count: 0,
            computed_prompt_tokens: 0,
            is_queued: false,
            best_place: u32::MAX,
            prompt_tokens: None,
            has_finished: false,
            stalled: Duration::ZERO,
            queued: Duration::ZERO,
        }
    }

    /// Adds a wait for an event. Other time is not included: while the caller reads slowly, events are
    /// buffered.
    pub(super) fn add_wait(&mut self, wait: Duration) {
        self.stalled += wait;
        self.queued += wait;
    }

    /// Adds an event.
    ///
    /// # Errors
    /// The replica is stuck, or breaks the contract.
    pub(super) fn add(&mut self, event: &Event) -> Result<(), GenerationError> {
        if let Event::Progress(progress) = event {
            self.check(progress)?;
        }
        if self.is_advance(event) {
            self.stalled = Duration::ZERO;
        }
        let (limit, place) = if self.has_finished {
            (MAX_SUMMARY_WAIT.min(self.max_stall), " after the end of the output")
        } else {
            (self.max_stall, "")
        };
        if self.stalled > limit {
            return Err(stuck(&format!("it reported no advance for {limit:?}{place}")));
        }
        let limit = self.max_stall.saturating_mul(QUEUE_STALLS);
        if self.is_queued && self.queued > limit {
            return Err(stuck(&format!("its queue did not move for {limit:?}")));
        }
        Ok(())
    }

    /// Returns the time without a better place in the queue, if it is so long that the task should leave the replica
    /// for one that accepts tasks.
    pub(super) fn queue_stall(&self) -> Option<Duration> {
        let limit = MAX_QUEUE_STALL.min(self.max_stall);
        (self.prompt_tokens.is_none() && self.queued > limit).then_some(self.queued)
    }

    /// Returns true if the last event was no advance.
    pub(super) fn is_stalled(&self) -> bool {
        !self.stalled.is_zero()
    }

    fn check(&mut self, progress: &Progress) -> Result<(), GenerationError> {
        self.count += 1;
        let seconds = self.start.elapsed().as_secs() + 1;
        if self.count > seconds.saturating_mul(MAX_PER_SECOND) {
            return Err(faulty(&format!("sent {} `progress` events within {seconds} s", self.count)));
        }
        let (computed, most) = (progress.computed_prompt_tokens, self.prompt_tokens.unwrap_or(u32::MAX));
        if computed > most {
            return Err(faulty(&format!("reported {computed} computed tokens of a prompt of {most}")));
        }
        let age = progress.last_step_age.map(Duration::try_from);
        match age {
            Some(Ok(age)) if age > SLOW_STEP => Err(stuck(&format!("its engine's last step ended {age:?} ago"))),
            Some(Ok(_)) => Ok(()),
            None | Some(Err(_)) => Err(faulty("sent `progress` without the age of the engine's last step")),
        }
    }

    /// Returns true if the event shows work on the task, or a place in the queue. A smaller number of
    /// computed tokens is an advance, too: a preempted output is computed from its start.
    fn is_advance(&mut self, event: &Event) -> bool {
        match event {
            Event::Progress(Progress { queue_place, computed_prompt_tokens, .. }) => {
                let computed = std::mem::replace(&mut self.computed_prompt_tokens, *computed_prompt_tokens);
                self.is_queued = queue_place.is_some();
                if let Some(place) = queue_place.filter(|place| *place < self.best_place) {
                    (self.best_place, self.queued) = (place, Duration::ZERO);
                }
                !self.has_finished && (queue_place.is_some() || computed != *computed_prompt_tokens)
            }
            Event::PromptLogprobs(PromptLogprobs { tokens }) => !tokens.is_empty(),
            Event::Delta(delta) => !(delta.token_ids.is_empty() && delta.text.is_empty() && delta.bytes.is_empty()),
            Event::Finished(_) => {
                self.has_finished = true;
                true
            }
            Event::Accepted(accepted) => {
                self.prompt_tokens = Some(accepted.prompt_tokens);
                (self.best_place, self.queued) = (u32::MAX, Duration::ZERO);
                true
            }
            Event::Summary(_) => true,
        }
    }
}
