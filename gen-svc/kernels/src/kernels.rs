//! The thread team and the ISA level that all kernels share.

use crate::isa::IsaLevel;
use crate::pool::Team;

/// All kernels at one ISA level, on one thread team.
#[derive(Debug)]
pub struct Kernels {
    pub(crate) team: Team,
    pub(crate) level: IsaLevel,
}

impl Kernels {
    /// Creates the kernels and starts `threads` - 1 threads; the caller's thread is the first of
    /// the team.
    #[must_use]
    pub fn new(threads: usize, level: IsaLevel) -> Self {
        Self { team: Team::new(threads), level }
    }

    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    #[must_use]
    pub fn level(&self) -> IsaLevel {
        self.level
    }
}
