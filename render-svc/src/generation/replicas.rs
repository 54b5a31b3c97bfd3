//! The set of known replicas.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{RwLock, RwLockWriteGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use super::replica::Replica;

/// All known replicas, and a signal for changes to them.
#[derive(Debug)]
pub(super) struct Replicas {
    list: RwLock<Vec<Arc<Replica>>>,
    /// Notifies when a replica is added or removed, or when its health changes.
    changed: watch::Sender<()>,
    created: Instant,
}

/// Number of replicas in each state of health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HealthCounts {
    /// The last health check succeeded.
    pub healthy: usize,
    /// No health check has finished yet.
    pub unknown: usize,
    /// The last health check or call failed.
    pub unhealthy: usize,
}

impl Replicas {
    /// Returns an empty set.
    pub(super) fn new() -> Self {
        Self { list: RwLock::default(), changed: watch::Sender::new(()), created: Instant::now() }
    }

    /// Returns the replicas at this moment.
    pub(super) fn snapshot(&self) -> Vec<Arc<Replica>> {
        self.list.read().clone()
    }

    /// Locks the set for changes.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Vec<Arc<Replica>>> {
        self.list.write()
    }

    /// Returns the signal for changes.
    pub(super) fn changed(&self) -> &watch::Sender<()> {
        &self.changed
    }

    /// Returns the time since the start of the set, by which periods of all replicas are numbered.
    pub(super) fn age(&self) -> Duration {
        self.created.elapsed()
    }

    /// Counts the replicas by their health.
    pub(super) fn health_counts(&self) -> HealthCounts {
        let replicas = self.snapshot();
        let count = |is: fn(&Replica) -> bool| replicas.iter().filter(|replica| is(replica)).count();
        let (healthy, unknown) = (count(Replica::is_healthy), count(Replica::is_unknown));
        HealthCounts { healthy, unknown, unhealthy: replicas.len() - healthy - unknown }
    }

    /// Returns the number of replicas that are left out after an ejection.
    pub(super) fn ejected(&self) -> usize {
        self.snapshot().iter().filter(|replica| replica.is_ejected()).count()
    }

    /// Returns the number of tasks that run on the replicas.
    pub(super) fn tasks(&self) -> usize {
        self.snapshot().iter().map(|replica| replica.tasks()).sum()
    }
}
