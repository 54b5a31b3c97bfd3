//! The thread team and the level of instructions that all kernels share.

use crate::isa::IsaLevel;
use crate::pool::Team;

/// All kernels at one level, on one thread team.
#[derive(Debug)]
pub struct Kernels {
    pub(crate) team: Team,
    pub(crate) level: IsaLevel,
}

impl Kernels {
    /// Starts `threads` - 1 threads: the caller is the first.
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
