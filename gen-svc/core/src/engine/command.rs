//! The commands that handles send to the engine's thread.

use std::sync::Arc;
use std::time::Instant;

use tandem_common::telemetry::Span;
use tokio::sync::{mpsc, oneshot};

use super::event::Event;
use super::progress::RequestProgress;
use super::shared::QueueSlot;
use crate::request::PreparedRequest;

/// A command to the engine's thread.
#[derive(Debug)]
pub(super) enum Command {
    /// Queues a request.
    Generate(Box<Job>),
    /// Evicts all unreferenced blocks. The reply is the number of evicted blocks.
    FlushPrefixCache(oneshot::Sender<usize>),
}

/// A request on its way to the engine's thread.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: PreparedRequest,
    pub(super) deadline: Option<Instant>,
    /// When the request was submitted.
    pub(super) submitted: Instant,
    pub(super) span: Span,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) progress: Arc<RequestProgress>,
    pub(super) slot: QueueSlot,
}
