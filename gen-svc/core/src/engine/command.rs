//! The commands that handles send to the engine's thread.

use tokio::sync::oneshot;

use crate::answer::Answer;

/// A command to the engine's thread.
#[derive(Debug)]
pub(super) enum Command {
    /// Queues a request.
    Generate(Box<Answer>),
    /// Evicts all unreferenced blocks. The reply is the number of evicted blocks.
    FlushPrefixCache(oneshot::Sender<usize>),
}
