//! One request, as the message of each route.

use tandem_common::pb::generate::v1::GenerateRequest;
use tandem_common::pb::task::v1::RunTaskRequest;

/// The text and the token ids of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
}

/// One request for both routes.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) direct: GenerateRequest,
    pub(super) run_task: RunTaskRequest,
    /// The answer that both routes must return.
    pub(super) answer: Answer,
}
