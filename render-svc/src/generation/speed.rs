//! Measures a call, and judges its replica by the speed of the others.

use std::sync::Arc;
use std::time::Duration;

use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::{Accepted, FinishReason};
use tokio::time::Instant;

use super::failure::{stuck, unavailable};
use super::pace::{Kind, Measure, PERIOD, Pace, Sums, Work};
use super::replica::{Lease, Replica};
use super::replicas::Replicas;
use crate::task::generator::GenerationError;
use crate::task::request::Prompt;

/// The time between two judgements in a call.
const INTERVAL: Duration = Duration::from_secs(1);
/// The shortest wait for a first token whose end at the deadline can be the replica's fault.
const MIN_EXPIRED: Duration = Duration::from_secs(1);

/// The speed of a call.
#[derive(Debug)]
pub(super) struct Speed {
    replicas: Arc<Replicas>,
    phase: Phase,
    /// The prompt's tokens that the replica computes.
    prompt_tokens: usize,
    /// True for a prompt with images. Its tokens do not show the work of its images, so it is not measured.
    has_images: bool,
    start: Instant,
    /// The waits before the first token, in the queue too.
    waited: Duration,
    /// The time in the queue, which is no speed.
    queue: Duration,
    /// The last period to which the unfinished prompt was added.
    added_in: Option<u64>,
    last_token: Instant,
    /// The work of this call.
    own: Sums,
    judged: Instant,
}

/// The cause of a task's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The request's turn in the replica's queue.
    Queue,
    /// The first token.
    Prompt,
    /// The next token.
    Output,
}

impl Speed {
    pub(super) fn new(replicas: Arc<Replicas>, prompt: &Prompt) -> Self {
        let now = Instant::now();
        Self {
            replicas,
            phase: Phase::Queue,
            prompt_tokens: prompt.prefix().len(),
            has_images: prompt.has_images(),
            start: now,
            waited: Duration::ZERO,
            queue: Duration::ZERO,
            added_in: None,
            last_token: now,
            own: Sums::default(),
            judged: now,
        }
    }

    /// Adds a wait for an event.
    pub(super) fn wait(&mut self, lease: &Lease, wait: Duration) {
        match self.phase {
            Phase::Queue => self.waited += wait,
            Phase::Prompt => {
                self.waited += wait;
                self.add_running_prompt(lease, wait);
            }
            Phase::Output => self.add(lease, Kind::Output, |sums| sums.least.time += wait),
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// The replica is much slower than the others.
    pub(super) fn add_event(&mut self, lease: &Lease, event: &Event) -> Result<(), GenerationError> {
        match event {
            Event::Accepted(accepted) => self.accept(lease, accepted),
            Event::Delta(delta) if !delta.token_ids.is_empty() => self.add_tokens(lease, delta.token_ids.len()),
            Event::Finished(finished) if finished.reason() == FinishReason::Deadline => self.expire(lease),
            _ => {}
        }
        if self.judged.elapsed() < INTERVAL {
            return Ok(());
        }
        self.judged = Instant::now();
        self.slowness(lease).map_or(Ok(()), |problem| Err(stuck(&problem)))
    }

    /// Returns the problem of a replica that is much slower than the others. A replica on probation is judged by its
    /// probe, and else by all tasks of the last minute.
    pub(super) fn slowness(&self, lease: &Lease) -> Option<String> {
        let (peers, period) = (self.paces(lease), self.period());
        let ratio = if lease.is_probe() {
            self.own.slowness(&peers, period)
        } else {
            lease.replica().pace().clone().slowness(&peers, period)
        };
        ratio.map(|ratio| format!("it is {ratio:.0} times slower than other replicas"))
    }

    /// Records that the deadline has ended the call.
    pub(super) fn expire(&self, lease: &Lease) {
        if let Some(problem) = self.slowness(lease) {
            lease.eject(&unavailable(&problem));
        }
        if self.phase == Phase::Output || self.has_images || self.waited < MIN_EXPIRED {
            return;
        }
        let mut expired = Sums::default();
        expired.of(Kind::Prompt).least = Work { parts: 1, tokens: self.prompt_tokens, time: self.waited };
        if expired.slowness(&self.paces(lease), self.period()).is_some() {
            lease.record_expiry(&unavailable(
                "tasks ended at their deadlines without a token, unlike on other replicas",
            ));
        }
    }

    /// Returns true if the replica has accepted no task for this time, although another one has or is idle.
    pub(super) fn is_queue_stuck(&self, lease: &Lease, waited: Duration) -> bool {
        let has_accepted = |replica: &Replica| replica.accepted().is_some_and(|accepted| accepted.elapsed() < waited);
        let is_open = |replica: &Arc<Replica>| replica.tasks() == 0 || has_accepted(replica);
        !has_accepted(lease.replica()) && self.peers(lease).iter().any(is_open)
    }

    /// Adds the end of the wait in the queue. Any time before that is not in the queue belongs to the prompt.
    fn accept(&mut self, lease: &Lease, accepted: &Accepted) {
        lease.replica().record_acceptance();
        self.phase = Phase::Prompt;
        self.prompt_tokens = accepted.prompt_tokens.saturating_sub(accepted.cached_tokens) as usize;
        self.queue = Duration::try_from_secs_f64(accepted.queue_ms / 1000.0).unwrap_or_default();
        self.add_running_prompt(lease, Duration::ZERO);
    }

    /// Adds an unfinished prompt, with all of its waits, to each period that it lasts.
    fn add_running_prompt(&mut self, lease: &Lease, wait: Duration) {
        let period = self.period();
        let work = if self.added_in.replace(period) == Some(period) {
            Work { time: wait, ..Work::default() }
        } else {
            Work { parts: 1, tokens: self.prompt_tokens, time: self.waited.saturating_sub(self.queue) }
        };
        if !self.has_images {
            lease.replica().pace().at(period).of(Kind::Prompt).least += work;
            let time = self.waited.saturating_sub(self.queue);
            self.own.of(Kind::Prompt).least = Work { parts: 1, tokens: self.prompt_tokens, time };
        }
    }

    /// Adds tokens. The first ones end the prompt.
    fn add_tokens(&mut self, lease: &Lease, count: usize) {
        let (now, tokens) = (Instant::now(), self.prompt_tokens);
        if self.phase == Phase::Output {
            let time = now - self.last_token;
            self.add(lease, Kind::Output, |measure| {
                measure.least += Work { parts: count, tokens: count, time: Duration::ZERO };
                measure.most += Work { parts: count, tokens: count, time };
            });
        } else {
            let time = (now - self.start).saturating_sub(self.queue);
            if !self.has_images {
                self.add(lease, Kind::Prompt, |measure| measure.most += Work { parts: 1, tokens, time });
            }
            // If the caller has read late, the next tokens may have arrived before.
            let read = (now - self.start).saturating_sub(self.waited);
            self.add(lease, Kind::Output, |measure| measure.most.time += read);
        }
        (self.phase, self.last_token) = (Phase::Output, now);
    }

    fn period(&self) -> u64 {
        self.replicas.age().as_secs() / PERIOD.as_secs()
    }

    fn add(&mut self, lease: &Lease, kind: Kind, add: impl Fn(&mut Measure)) {
        add(self.own.of(kind));
        add(lease.replica().pace().at(self.period()).of(kind));
    }

    /// Returns the speed of the other usable replicas.
    fn paces(&self, lease: &Lease) -> Vec<Pace> {
        self.peers(lease).iter().map(|replica| replica.pace().clone()).collect()
    }

    /// Returns the other usable replicas of the model. Without one, no replica is slow: it is the last one.
    fn peers(&self, lease: &Lease) -> Vec<Arc<Replica>> {
        let is_peer = |replica: &Arc<Replica>| {
            replica.id() != lease.replica().id()
                && *replica.model() == *lease.model()
                && replica.is_healthy()
                && replica.ejected_until().is_none()
        };
        self.replicas.snapshot().into_iter().filter(is_peer).collect()
    }
}
