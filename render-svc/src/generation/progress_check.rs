//! Detects a replica whose engine is stuck, or whose `progress` events come from no work.

use std::time::Duration;

use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::{Progress, PromptLogprobs};
use tokio::time::Instant;

use super::failure::{faulty, stuck};
use crate::task::generator::GenerationError;

/// Age of the engine's last step from which the replica is stuck, although its server answers. As
/// for gen-svc's health: the slowest step of a usable configuration takes a few seconds.
const MAX_STEP_AGE: Duration = Duration::from_secs(30);
/// Longest wait for the summary after the output's end. Nothing is left to compute.
const MAX_SUMMARY_WAIT: Duration = Duration::from_secs(10);
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
    has_finished: bool,
    /// Time of waits for events since the last advance.
    stalled: Duration,
}

impl ProgressCheck {
    pub(super) fn new(max_stall: Duration) -> Self {
        Self {
            max_stall,
            start: Instant::now(),
            count: 0,
            computed_prompt_tokens: 0,
            has_finished: false,
            stalled: Duration::ZERO,
        }
    }

    /// Adds a wait for an event. Other time is not included: while the caller reads slowly, events are
    /// buffered.
    pub(super) fn add_wait(&mut self, wait: Duration) {
        self.stalled += wait;
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
        Ok(())
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
        let age = progress.last_step_age.map(Duration::try_from);
        match age {
            Some(Ok(age)) if age > MAX_STEP_AGE => Err(stuck(&format!("its engine's last step ended {age:?} ago"))),
            Some(Ok(_)) => Ok(()),
            None | Some(Err(_)) => Err(faulty("sent `progress` without the age of the engine's last step")),
        }
    }

    /// Returns true if the event shows work on the task, or a place in the queue.
    ///
    /// Whether the queue of a replica moves is not checked: an honest place may stay the same for as long as
    /// the outputs before it run. A smaller number of computed tokens is an advance, too: a preempted
    /// output is computed from its start.
    fn is_advance(&mut self, event: &Event) -> bool {
        match event {
            Event::Progress(Progress { queue_place, computed_prompt_tokens, .. }) => {
                let before = std::mem::replace(&mut self.computed_prompt_tokens, *computed_prompt_tokens);
                !self.has_finished && (queue_place.is_some() || before != *computed_prompt_tokens)
            }
            Event::PromptLogprobs(PromptLogprobs { tokens }) => !tokens.is_empty(),
            Event::Delta(delta) => !(delta.token_ids.is_empty() && delta.text.is_empty() && delta.bytes.is_empty()),
            Event::Finished(_) => {
                self.has_finished = true;
                true
            }
            Event::Accepted(_) | Event::Summary(_) => true,
        }
    }
}
