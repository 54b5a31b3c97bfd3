//! Calls to the generation service.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use tandem_common::call::{BearerToken, CredentialsError};
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::{GenerateRequest, GenerateResponse};
use tandem_common::timing::REPLICA_SILENCE;
use tokio::time::Instant;
use tonic::{Request, Streaming};

use super::convert;
use super::event_order::EventOrder;
use super::failure::{
    deadline_exceeded, failure, failure_after_acceptance, faulty, is_late, stuck, truncated, unavailable,
};
use super::output_size::OutputSize;
use super::patience::in_time;
use super::pool::{Availability, Config, Pool};
use super::progress_check::ProgressCheck;
use super::replica::{Doubt, Lease};
use super::replicas::HealthCounts;
use super::routing::PrefixKey;
use super::speed::Speed;
use crate::error::Error;
use crate::task::generator::{FailureClass, GenerationError, GenerationStream, Generator};
use crate::task::request::GenerationRequest;

/// Timeout for the end of a call after its last event.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);
/// Longest time with unknown events only. A later version of the contract may have more kinds of events.
const MAX_UNKNOWN: Duration = Duration::from_secs(30);
/// Time between an event and the request for the next one from which the caller of the task reads slowly.
const SLOW_READ: Duration = Duration::from_secs(10);

/// Client of the generation service and its replicas.
#[derive(Debug)]
pub struct GenerationClient {
    pool: Pool,
    token: Option<BearerToken>,
    max_stall: Duration,
}

impl GenerationClient {
    /// Starts to look for the replicas. They are connected to in the background.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub fn connect(config: &Config) -> Result<Self, CredentialsError> {
        let token = config.credentials.token()?;
        Ok(Self { pool: Pool::connect(config, token.clone())?, token, max_stall: config.max_stall })
    }

    /// Returns the number of replicas in each state of health.
    #[must_use]
    pub fn health_counts(&self) -> HealthCounts {
        self.pool.health_counts()
    }

    /// Returns whether models have healthy replicas.
    #[must_use]
    pub fn availability(&self) -> Availability {
        self.pool.availability()
    }

    /// Calls replicas in turn, other than the `tried` ones, until one accepts the request.
    async fn open(
        &self,
        request: &GenerationRequest,
        generated: &[u32],
        mut left: LeftReplicas,
        mut tried: HashSet<u64>,
    ) -> Result<GenerationCall, Error> {
        let key = PrefixKey::new(&request.options.cache_salt, request.prompt.prefix());
        let deadline = request.deadline.map(Instant::from_std);
        let (mut last, mut refusal) = (None, None);
        while let Some(lease) =
            self.pool.pick(&request.model, key, &tried, &left.avoided, deadline, refusal.is_none()).await
        {
            let call = self.call(convert::request(request, generated, lease.model().id()), deadline);
            let mut speed = Speed::new(self.pool.replicas(), &request.prompt);
            let start = Instant::now();
            let failed = match in_time(REPLICA_SILENCE, lease.client().generate(call)).await {
                Some(Ok(response)) => {
                    speed.wait(&lease, start.elapsed());
                    let output = OutputSize::new(request, generated.len());
                    let progress = ProgressCheck::new(self.max_stall);
                    let checks = (output, progress, speed);
                    return Ok(GenerationCall::new(lease, response.into_inner(), checks, deadline, left));
                }
                Some(Err(status)) => failure(status, deadline),
                None => silent(),
            };
            let failed = if left.has_accepted { failure_after_acceptance(failed) } else { failed };
            report(&lease, &failed);
            let GenerationError { class, error } = failed;
            tried.insert(lease.replica().id());
            match class {
                FailureClass::Permanent => return Err(error),
                FailureClass::Doubtful if left.is_refused() => return Err(refusal.unwrap_or(error)),
                FailureClass::Doubtful => {
                    left.doubts.push(lease.doubt(class, &error, left.has_accepted));
                    refusal = Some(error);
                }
                FailureClass::Rejected => {
                    left.doubts.push(lease.doubt(class, &error, left.has_accepted));
                    last = Some(error);
                }
                _ => last = Some(error),
            }
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        Err(match last {
            Some(Error::GenerationUnavailable { message }) => {
                unavailable(&format!("{}; the last call failed: {message}", self.pool.explanation(&request.model)))
            }
            Some(error) => error,
            None if is_late => Error::NoReplicaInTime { explanation: self.pool.explanation(&request.model) },
            None => unavailable(&self.pool.explanation(&request.model)),
        })
    }

    /// Adds the remaining time and the credentials to a message.
    fn call(&self, message: GenerateRequest, deadline: Option<Instant>) -> Request<GenerateRequest> {
        let mut request = Request::new(message);
        if let Some(deadline) = deadline {
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        if let Some(token) = &self.token {
            token.add_to(request.metadata_mut());
        }
        request
    }
}

impl Generator for GenerationClient {
    type Stream = GenerationCall;

    async fn start(&self, request: &GenerationRequest) -> Result<GenerationCall, Error> {
        self.open(request, &[], LeftReplicas::default(), HashSet::new()).await
    }

    async fn resume(
        &self,
        request: &GenerationRequest,
        generated: &[u32],
        failed: &GenerationCall,
        class: FailureClass,
    ) -> Result<GenerationCall, Error> {
        let (id, mut left) = (failed.lease.replica().id(), failed.left.clone());
        left.add(id, class);
        left.has_accepted = failed.is_accepted();
        let mut tried = left.excluded.clone();
        if matches!(class, FailureClass::RetryElsewhere | FailureClass::Rejected) {
            tried.insert(id);
        }
        self.open(request, generated, left, tried).await
    }
}

/// Records at the replica that its call has failed.
fn report(lease: &Lease, GenerationError { class, error }: &GenerationError) {
    match class {
        FailureClass::ReplicaDown => lease.record_failure(error),
        FailureClass::Stuck => {
            lease.eject(error);
            // The task then waits for the next health check, and not for this replica.
            lease.mark_failed();
        }
        FailureClass::Faulty => lease.eject(error),
        FailureClass::Permanent
        | FailureClass::Doubtful
        | FailureClass::RetryElsewhere
        | FailureClass::Rejected
        | FailureClass::Interrupted => {}
    }
}

/// Returns the failure for a replica that sends nothing.
fn silent() -> GenerationError {
    stuck(&format!("it sent nothing for {REPLICA_SILENCE:?}"))
}

/// The replicas that a task has left.
#[derive(Debug, Clone, Default)]
struct LeftReplicas {
    /// They get no further call of the task.
    excluded: HashSet<u64>,
    /// They get a further call only if no other replica accepts it.
    avoided: HashSet<u64>,
    /// True if one of them accepted the task.
    has_accepted: bool,
    /// Those whose refusals or failures no other replica has confirmed or refuted yet.
    doubts: Vec<Doubt>,
}

impl LeftReplicas {
    fn add(&mut self, replica: u64, class: FailureClass) {
        match class {
            FailureClass::Faulty | FailureClass::Doubtful => drop(self.excluded.insert(replica)),
            FailureClass::RetryElsewhere | FailureClass::Rejected | FailureClass::Interrupted => {
                self.avoided.insert(replica);
            }
            FailureClass::Permanent | FailureClass::ReplicaDown | FailureClass::Stuck => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.excluded.is_empty() && self.avoided.is_empty()
    }

    /// Returns true if a replica has refused the task. If a second one does, the task is at fault.
    fn is_refused(&self) -> bool {
        self.doubts.iter().any(|doubt| doubt.class == FailureClass::Doubtful)
    }

    /// Resolves the doubts that this replica refutes, as it accepts the task or continues it. A replica that the
    /// task has left before refutes none: it may have caused the refusals of its output.
    fn refute(&mut self, replica: u64, continues: bool) {
        if self.excluded.contains(&replica) || self.avoided.contains(&replica) {
            return;
        }
        let is_refuted = |doubt: &Doubt| continues || !doubt.was_accepted;
        self.doubts.iter().filter(|doubt| is_refuted(doubt)).for_each(Doubt::resolve);
        self.doubts.retain(|doubt| !is_refuted(doubt));
    }
}

/// A call to a replica. Dropping it cancels the call.
#[derive(Debug)]
pub struct GenerationCall {
    lease: Lease,
    stream: Streaming<GenerateResponse>,
    deadline: Option<Instant>,
    order: EventOrder,
    output: OutputSize,
    progress: ProgressCheck,
    speed: Speed,
    left: LeftReplicas,
    has_ended_early: bool,
    is_read_slowly: bool,
    /// The time of the last event that this version of the contract has.
    last_known: Instant,
}

impl GenerationCall {
    fn new(
        lease: Lease,
        stream: Streaming<GenerateResponse>,
        (output, progress, speed): (OutputSize, ProgressCheck, Speed),
        deadline: Option<Instant>,
        left: LeftReplicas,
    ) -> Self {
        Self {
            lease,
            stream,
            deadline,
            order: EventOrder::default(),
            output,
            progress,
            speed,
            left,
            has_ended_early: false,
            is_read_slowly: false,
            last_known: Instant::now(),
        }
    }

    /// Returns true if this replica, or one that the task has left, accepted the task.
    fn is_accepted(&self) -> bool {
        self.left.has_accepted || self.order != EventOrder::Empty
    }

    /// Returns the next message. The replica ends the call before the deadline. If it does not,
    /// this side ends it at the deadline, which is earlier than the caller's own.
    async fn message(&mut self) -> Result<GenerateResponse, GenerationError> {
        let start = Instant::now();
        let message = in_time(REPLICA_SILENCE, self.stream.message());
        let message = match self.deadline {
            None => message.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, message).await {
                Ok(message) => message,
                Err(_) => {
                    self.speed.wait(&self.lease, start.elapsed().min(REPLICA_SILENCE));
                    self.speed.expire(&self.lease);
                    return Err(deadline_exceeded());
                }
            },
        };
        // It takes longer if the caller reads slowly, or if this process does not run.
        let wait = start.elapsed().min(REPLICA_SILENCE);
        self.progress.add_wait(wait);
        self.speed.wait(&self.lease, wait);
        let message = message.ok_or_else(silent)?;
        message.map_err(|status| failure(status, self.deadline))?.ok_or_else(truncated)
    }

    /// Checks an event. Waits briefly for the end of the call after the last one.
    async fn check(&mut self, event: &Event) -> Result<(), GenerationError> {
        let checked = self.order.add(event, is_late(self.deadline)).and_then(|()| self.output.add(event));
        checked.map_err(|problem| faulty(&problem))?;
        self.progress.add(event)?;
        self.speed.add_event(&self.lease, event)?;
        if let Some(waited) = self.progress.queue_stall()
            && self.speed.is_queue_stuck(&self.lease, waited)
        {
            return Err(stuck(&format!("it accepted no task for {waited:?}, unlike another replica")));
        }
        let continues = self.output.continues(event);
        if continues || matches!(event, Event::Accepted(_)) {
            self.left.refute(self.lease.replica().id(), continues);
        }
        match event {
            Event::Summary(_) => {
                // So the call is not recorded as cancelled.
                let end = tokio::time::timeout(CLOSE_TIMEOUT, self.stream.message()).await;
                if let Ok(Ok(Some(_))) = end {
                    return Err(faulty("sent a message after `summary`"));
                }
                match self.speed.slowness(&self.lease) {
                    Some(problem) => self.lease.eject(&unavailable(&problem)),
                    None if self.has_ended_early => {}
                    None => self.lease.record_success(),
                }
            }
            Event::Finished(finished) if self.output.is_early_end(finished) => {
                self.has_ended_early = true;
                // The request may be the cause if it failed elsewhere, and a slow reader may be, too.
                if self.left.is_empty() && !self.is_read_slowly {
                    let reason = finished.reason().as_str_name();
                    self.lease.record_early_end(&unavailable(&format!("the replica ended outputs with {reason}")));
                }
            }
            // A replica without work to show has not recovered.
            _ if self.progress.is_stalled() => {}
            _ => self.lease.record_event(),
        }
        Ok(())
    }

    /// Returns the next event, checked. Skips events that this version of the contract does not have, which
    /// are unset.
    async fn event(&mut self) -> Result<Event, GenerationError> {
        self.is_read_slowly |= self.last_known.elapsed() > SLOW_READ;
        loop {
            if let Some(event) = self.message().await?.event {
                self.last_known = Instant::now();
                self.check(&event).await?;
                return Ok(event);
            }
            if self.last_known.elapsed() > MAX_UNKNOWN {
                return Err(stuck(&format!("it sent nothing but unknown events for {MAX_UNKNOWN:?}")));
            }
        }
    }
}

impl GenerationStream for GenerationCall {
    async fn next(&mut self) -> Result<Event, GenerationError> {
        match self.event().await {
            Ok(event) => Ok(event),
            Err(failed) => {
                let mut failed = if self.is_accepted() { failure_after_acceptance(failed) } else { failed };
                report(&self.lease, &failed);
                if failed.class == FailureClass::Doubtful && self.left.is_refused() {
                    failed.class = FailureClass::Permanent;
                }
                if matches!(failed.class, FailureClass::Doubtful | FailureClass::Rejected) {
                    let doubt = self.lease.doubt(failed.class, &failed.error, self.is_accepted());
                    self.left.doubts.push(doubt);
                }
                Err(failed)
            }
        }
    }

    fn replica(&self) -> SocketAddr {
        self.lease.replica().address()
    }
}
