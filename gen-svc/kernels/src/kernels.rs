//! The thread team and the ISA level that all kernels share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::buffer::{Buffer, LargePages};
use crate::clock::{Clock, Part, Running};
use crate::error::Error;
use crate::isa::IsaLevel;
use crate::pool::Team;
use crate::rounded::PairRows;

/// All kernels at one ISA level, on one thread team.
#[derive(Debug)]
pub struct Kernels {
    pub(crate) team: Team,
    pub(crate) level: IsaLevel,
    /// Memory for the rounded input of a product. Its content is used within one call only.
    pair_rows: Mutex<PairRows>,
    /// The memory of weights.
    weights: Mutex<LargePages>,
    clock: Option<Clock>,
}

impl Kernels {
    /// Creates the kernels and starts `threads` - 1 threads; the caller's thread is the first of
    /// the team.
    #[must_use]
    pub fn new(threads: usize, level: IsaLevel) -> Self {
        Self { team: Team::new(threads), level, pair_rows: Mutex::default(), weights: Mutex::default(), clock: None }
    }

    /// Measures the time of every kernel from now on.
    pub fn start_clock(&mut self) {
        self.clock = Some(Clock::default());
        self.team.start_clock();
    }

    /// Returns the time of a part since the last call, and starts again. Zero if no clock runs.
    #[must_use]
    pub fn take_time(&self, part: Part) -> Duration {
        self.clock.as_ref().map(|clock| clock.take(part)).unwrap_or_default()
    }

    /// Starts to count the time of a kernel, if a clock runs.
    pub(crate) fn time(&self, part: Part) -> Option<Running<'_>> {
        self.clock.as_ref().map(|clock| clock.run(part))
    }

    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    #[must_use]
    pub fn level(&self) -> IsaLevel {
        self.level
    }

    /// Allocates memory for weights.
    pub(crate) fn weight_memory(&self, bytes: usize) -> Result<Buffer, Error> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner).zeroed(bytes)
    }

    /// Calls `use_rows` with the memory for rounded input. A concurrent call gets other memory.
    pub(crate) fn with_pair_rows<T>(&self, use_rows: impl FnOnce(&mut PairRows) -> T) -> T {
        let memory = || self.pair_rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows = std::mem::take(&mut *memory());
        let result = use_rows(&mut rows);
        *memory() = rows;
        result
    }
}
