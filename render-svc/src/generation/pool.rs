//! The replicas of the generation service, and which of them a call goes to.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tandem_common::call::{BearerToken, Credentials, CredentialsError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::Uri;

use super::discovery::Target;
use super::replica::Lease;
use super::replicas::{HealthCounts, Replicas};
use super::routing::{PrefixKey, choose, explanation, serving};
use super::served_model::ReplicaModel;
use super::{ejection, metrics};
use crate::task::model_names::ModelNames;

/// A placeholder address, to check credentials before the replicas are known.
const ANY_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Where the generation service is, and how to call it.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses: each one replica, or a name that resolves to several.
    pub targets: Vec<Uri>,
    /// How long a call waits for a replica while none is healthy.
    pub patience: Duration,
    /// Longest time in which a running output may have no advance.
    pub max_stall: Duration,
    /// TLS and bearer token.
    pub credentials: Credentials,
}

/// The replicas, kept up to date in the background until it is dropped.
#[derive(Debug)]
pub(super) struct Pool {
    replicas: Arc<Replicas>,
    patience: Duration,
    discovery: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts to look up the targets and to watch the replicas' health.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub(super) fn connect(config: &Config, token: Option<BearerToken>) -> Result<Self, CredentialsError> {
        let Config { targets, patience, max_stall: _, credentials } = config;
        for uri in targets {
            credentials.endpoint(uri, ANY_ADDRESS)?;
        }
        let replicas = Arc::new(Replicas::new());
        metrics::observe(&replicas);
        ejection::register();
        let follow = |uri: &Uri| {
            let (credentials, token, replicas) = (credentials.clone(), token.clone(), Arc::clone(&replicas));
            tokio::spawn(Target { uri: uri.clone(), credentials, token, replicas }.follow())
        };
        // A repeated address is one target.
        let discovery = targets.iter().collect::<HashSet<_>>().into_iter().map(follow).collect();
        Ok(Self { replicas, patience: *patience, discovery })
    }

    /// Returns the replicas.
    pub(super) fn replicas(&self) -> Arc<Replicas> {
        Arc::clone(&self.replicas)
    }

    /// Returns the number of replicas in each state of health.
    pub(super) fn health_counts(&self) -> HealthCounts {
        self.replicas.health_counts()
    }

    /// Leases a replica of the model for a prompt, other than the `tried` ones, and an `avoided` one only if
    /// there is no other. If `waits`, waits for a healthy one, but no longer than the configured patience and the
    /// deadline. Returns None if none is found.
    pub(super) async fn pick(
        &self,
        model: &ModelNames,
        key: PrefixKey,
        tried: &HashSet<u64>,
        avoided: &HashSet<u64>,
        deadline: Option<Instant>,
        waits: bool,
    ) -> Option<Lease> {
        let until = Instant::now() + if waits { self.patience } else { Duration::ZERO };
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let preferably_not: HashSet<u64> = tried.union(avoided).copied().collect();
        let mut changed = self.replicas.changed().subscribe();
        loop {
            changed.mark_unchanged();
            let replicas = self.replicas.snapshot();
            let serving = serving(&replicas, model);
            let preferred = choose(&serving, key, &preferably_not);
            if let Some(lease) = preferred.or_else(|| choose(&serving, key, tried)) {
                return Some(lease);
            }
            // If every replica was tried or serves another model, waiting cannot help.
            let is_exhausted =
                !replicas.is_empty() && serving.iter().all(|candidate| tried.contains(&candidate.replica.id()));
            if is_exhausted || tokio::time::timeout_at(until, changed.changed()).await.is_err() {
                return None;
            }
        }
    }

    /// Returns why no replica can serve the model, for the caller.
    pub(super) fn explanation(&self, model: &ModelNames) -> String {
        explanation(&self.replicas.snapshot(), model)
    }

    /// Returns the availability of the replicas.
    pub(super) fn availability(&self) -> Availability {
        Availability { changed: self.replicas.changed().subscribe(), replicas: Arc::clone(&self.replicas) }
    }
}

/// Whether models have healthy replicas, now and after each change.
#[derive(Debug)]
pub struct Availability {
    replicas: Arc<Replicas>,
    changed: watch::Receiver<()>,
}

impl Availability {
    /// Returns true if a healthy replica serves the model.
    #[must_use]
    pub fn serves(&self, model: &ModelNames) -> bool {
        serving(&self.replicas.snapshot(), model).iter().any(|candidate| candidate.replica.is_healthy())
    }

    /// Returns why no replica serves the model, if all replicas have named theirs.
    #[must_use]
    pub fn unserved(&self, model: &ModelNames) -> Option<String> {
        let replicas = self.replicas.snapshot();
        let is_known = !replicas.is_empty() && replicas.iter().all(|replica| *replica.model() != ReplicaModel::Unknown);
        (is_known && serving(&replicas, model).is_empty()).then(|| explanation(&replicas, model))
    }

    /// Waits for a change of the replicas.
    pub async fn changed(&mut self) {
        // The sender lives as long as `replicas`.
        let _ = self.changed.changed().await;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.discovery.iter().for_each(JoinHandle::abort);
    }
}
