//! The port to the generation service, and the events and failures that come through it.
//!
//! Events keep the contract's type, since a task forwards most of them. A copy would have to follow every
//! change of the contract.

use std::net::SocketAddr;

use tandem_common::pb::generate::v1::generate_response::Event;

use super::request::GenerationRequest;
use crate::error::Error;

/// Generates outputs on one of several replicas.
pub trait Generator: Send + Sync + 'static {
    /// A running output.
    type Stream: GenerationStream;

    /// Starts the output on a replica that accepts the request.
    ///
    /// # Errors
    /// No healthy replica is found in time, or every healthy one rejects the request.
    fn start(&self, request: &GenerationRequest) -> impl Future<Output = Result<Self::Stream, Error>> + Send;

    /// Resumes the output of a failed stream after the token ids `generated`.
    ///
    /// # Errors
    /// As for [`Self::start`].
    fn resume(
        &self,
        request: &GenerationRequest,
        generated: &[u32],
        failed: &Self::Stream,
        class: FailureClass,
    ) -> impl Future<Output = Result<Self::Stream, Error>> + Send;
}

/// A running output. Dropping it cancels the call.
pub trait GenerationStream: Send + Sync {
    /// Returns the next event. [`Event::Summary`] is the last one.
    ///
    /// # Errors
    /// The call failed, ended before its summary, or exceeded the deadline, or the replica is stuck
    /// or broke the contract.
    fn next(&mut self) -> impl Future<Output = Result<Event, GenerationError>> + Send;

    /// Returns the replica's address, for logs.
    fn replica(&self) -> SocketAddr;
}

/// Failure of a running output.
#[derive(Debug)]
pub struct GenerationError {
    /// Decides whether the task resumes.
    pub class: FailureClass,
    /// Error for the caller of a task that does not resume.
    pub error: Error,
}

/// Consequence of a failure for further attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// The deadline passed, or a second replica confirmed that the request is at fault: no replica can help.
    Permanent,
    /// The replica refused the request, or failed inside. One other replica is asked. If that one accepts the
    /// request, the replica is at fault.
    Doubtful,
    /// The replica rejects requests for now: another one may accept.
    RetryElsewhere,
    /// The replica rejected a task that it or another one accepted before. If another one continues the task, the
    /// replica is at fault.
    Rejected,
    /// The replica ended the output early. It may be chosen again while its health check reports
    /// SERVING.
    Interrupted,
    /// The replica is unreachable or its engine failed. It is avoided until its next successful
    /// health check.
    ReplicaDown,
    /// The replica does not answer. It is ejected: left out for a while, unless every replica is.
    Stuck,
    /// The replica broke the contract, or its model failed. The task is not retried on this replica. A
    /// replica that broke the contract is ejected.
    Faulty,
}
