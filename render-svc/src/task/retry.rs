//! Limits how often a task resumes.

/// Retries of one task.
const MAX_RETRIES: usize = 64;
/// Retries of one task without a new token in between. The request itself may cause the failures.
const MAX_RETRIES_WITHOUT_PROGRESS: usize = 3;

/// Retries that a task has left.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryBudget {
    total: usize,
    without_progress: usize,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { total: MAX_RETRIES, without_progress: MAX_RETRIES_WITHOUT_PROGRESS }
    }
}

impl RetryBudget {
    /// Takes one retry. Returns false if none is left.
    pub(super) fn take(&mut self) -> bool {
        if self.total == 0 || self.without_progress == 0 {
            return false;
        }
        self.total -= 1;
        self.without_progress -= 1;
        true
    }

    /// Restores the retries without progress, after a new token.
    pub(super) fn record_progress(&mut self) {
        self.without_progress = MAX_RETRIES_WITHOUT_PROGRESS;
    }
}
