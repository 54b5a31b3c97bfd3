//! The unclaimed tasks of one thread.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Consecutive task numbers: the first in the lower half, the end in the upper. Its thread changes it
/// before each task, so it has two cache lines alone: processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Share {
    tasks: AtomicU64,
}

impl Share {
    /// The greatest count of tasks.
    pub(super) const MOST_TASKS: usize = u32::MAX as usize;

    pub(super) fn fill(&self, tasks: Range<usize>) {
        self.tasks.store(pack(tasks.start as u32..tasks.end as u32), SeqCst);
    }

    /// Claims the first task, for the thread of this share.
    pub(super) fn claim_first(&self) -> Option<usize> {
        self.claim(|tasks| tasks.start + 1..tasks.end).map(|tasks| tasks.start as usize)
    }

    /// Claims the last task, for another thread.
    pub(super) fn claim_last(&self) -> Option<usize> {
        self.claim(|tasks| tasks.start..tasks.end - 1).map(|tasks| tasks.end as usize - 1)
    }

    /// Returns the tasks before the claim. `None` if there are none.
    fn claim(&self, rest: impl Fn(Range<u32>) -> Range<u32>) -> Option<Range<u32>> {
        let next = |tasks| Some(unpack(tasks)).filter(|tasks| !tasks.is_empty()).map(|tasks| pack(rest(tasks)));
        self.tasks.fetch_update(SeqCst, SeqCst, next).ok().map(unpack)
    }
}

fn pack(tasks: Range<u32>) -> u64 {
    u64::from(tasks.start) | u64::from(tasks.end) << 32
}

fn unpack(tasks: u64) -> Range<u32> {
    tasks as u32..(tasks >> 32) as u32
}
