//! Measures a call, and judges its replica by the speed of the others.

use std::sync::Arc;
use std::time::Duration;

use tandem_common::pb::generate::v1::FinishReason;
use tandem_common::pb::generate::v1::generate_response::Event;
use tokio::time::Instant;

use super::failure::{stuck, unavailable};
use super::pace::{Pace, Phase};
use super::replica::Lease;
use super::replicas::Replicas;
use crate::task::generator::GenerationError;

/// The time between two judgements in a call.
const INTERVAL: Duration = Duration::from_secs(1);

/// The speed of a call.
#[derive(Debug)]
pub(super) struct Speed {
    replicas: Arc<Replicas>,
    phase: Phase,
    /// The wait for the first token, in the queue too.
    waited: Duration,
    /// The prompt's tokens that the replica computes.
    prompt_tokens: usize,
    judged: Instant,
}

impl Speed {
    pub(super) fn new(replicas: Arc<Replicas>, prompt_tokens: usize) -> Self {
        Self { replicas, phase: Phase::Queue, waited: Duration::ZERO, prompt_tokens, judged: Instant::now() }
    }

    /// Adds a wait for an event.
    pub(super) fn wait(&mut self, lease: &Lease, wait: Duration) {
        lease.replica().pace().wait(self.phase, wait);
        if self.phase != Phase::Output {
            self.waited += wait;
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// The replica is much slower than the others.
    pub(super) fn add(&mut self, lease: &Lease, event: &Event) -> Result<(), GenerationError> {
        match event {
            Event::Accepted(accepted) => {
                self.phase = Phase::Prompt;
                self.prompt_tokens = accepted.prompt_tokens.saturating_sub(accepted.cached_tokens) as usize;
                lease.replica().pace().prompt(self.prompt_tokens);
            }
            Event::Delta(delta) if !delta.token_ids.is_empty() => {
                self.phase = Phase::Output;
                lease.replica().pace().tokens(delta.token_ids.len());
            }
            Event::Finished(finished) if finished.reason() == FinishReason::Deadline => self.expire(lease),
            _ => {}
        }
        if self.judged.elapsed() < INTERVAL {
            return Ok(());
        }
        self.judged = Instant::now();
        let slowness = lease.replica().pace().clone().slowness(&self.peers(lease));
        slowness.map_or(Ok(()), |ratio| Err(stuck(&format!("it is {ratio:.0} times slower than the other replicas"))))
    }

    /// Records that the deadline has ended the call.
    pub(super) fn expire(&self, lease: &Lease) {
        if self.phase != Phase::Output && Pace::is_too_late(self.prompt_tokens, self.waited, &self.peers(lease)) {
            lease.record_expiry(&unavailable(
                "tasks ended at their deadlines without a token, unlike on other replicas",
            ));
        }
    }

    /// Returns the speed of the other replicas of the model.
    fn peers(&self, lease: &Lease) -> Vec<Pace> {
        let replicas = self.replicas.snapshot();
        let is_peer = |id: u64| id != lease.replica().id();
        let peers = replicas.iter().filter(|replica| is_peer(replica.id()) && *replica.model() == *lease.model());
        peers.map(|replica| replica.pace().clone()).collect()
    }
}
