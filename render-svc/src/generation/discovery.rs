//! Looks up the replicas behind the configured addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tandem_common::call::{BearerToken, Credentials, CredentialsError};
use tandem_common::log_limit::LogLimit;
use tandem_common::status::chain;
use tonic::transport::Uri;

use super::replica::Replica;
use super::replicas::Replicas;

/// Time between two lookups of a name.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two log lines of failed lookups.
const LOOKUP_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A configured address: one replica, or a name that resolves to several.
pub(super) struct Target {
    pub(super) uri: Uri,
    pub(super) credentials: Credentials,
    pub(super) token: Option<BearerToken>,
    pub(super) replicas: Arc<Replicas>,
}

impl Target {
    /// Looks up the name and checks the TLS files for changes, at each interval. After a failure,
    /// the replicas stay as they are.
    pub(super) async fn follow(self) {
        let mut version = self.credentials.version();
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.uri.port_u16().unwrap_or_default();
        let (limit, mut is_resolved) = (LogLimit::new(LOOKUP_LOG_INTERVAL), true);
        loop {
            let now = self.credentials.version();
            let is_renewed = now.is_some() && now != version;
            match tokio::net::lookup_host((host.as_str(), port)).await {
                Ok(addresses) => {
                    if !std::mem::replace(&mut is_resolved, true) {
                        tracing::info!(host, "generation service lookup succeeded again");
                    }
                    match self.update(&addresses.collect(), is_renewed) {
                        Ok(()) => {}
                        Err(error) => {
                            tracing::error!(host, error = %chain(&error), "credentials unusable, keeping the replicas");
                        }
                    }
                    version = now.or(version);
                }
                Err(error) => {
                    is_resolved = false;
                    if let Some(unlogged) = limit.permit() {
                        tracing::warn!(host, %error, unlogged, "generation service lookup failed");
                    }
                }
            }
            tokio::time::sleep(LOOKUP_INTERVAL).await;
        }
    }

    /// Adds new replicas and removes replicas that the name no longer resolves to. With renewed
    /// credentials, also reconnects to the others. Running calls are not affected.
    ///
    /// # Errors
    /// The credentials cannot be used. Then nothing changes.
    fn update(&self, addresses: &BTreeSet<SocketAddr>, is_renewed: bool) -> Result<(), CredentialsError> {
        let is_ours = |replica: &Replica| replica.target() == &self.uri;
        let known = self.replicas.snapshot().into_iter().filter(|replica| is_ours(replica));
        let known: BTreeMap<_, _> = known.map(|replica| (replica.address(), replica)).collect();
        let called = addresses.iter().filter(|address| is_renewed || !known.contains_key(address));
        let endpoint = |address: &SocketAddr| Ok((*address, self.credentials.endpoint(&self.uri, *address)?));
        let endpoints: Vec<_> = called.map(endpoint).collect::<Result<_, _>>()?;
        // Only this target adds or removes its replicas, so `known` is still current.
        let mut replicas = self.replicas.write();
        let before = replicas.len();
        replicas.retain(|replica| !is_ours(replica) || addresses.contains(&replica.address()));
        let (removed, mut added) = (before - replicas.len(), 0);
        for (address, endpoint) in endpoints {
            let changed = self.replicas.changed().clone();
            match known.get(&address) {
                Some(replica) => replica.renew(endpoint, changed),
                None => {
                    replicas.push(Replica::new(self.uri.clone(), address, endpoint, self.token.clone(), changed));
                    added += 1;
                }
            }
        }
        drop(replicas);
        if added + removed > 0 {
            tracing::info!(service = %self.uri, added, removed, "generation replicas changed");
            self.replicas.changed().send_replace(());
        }
        Ok(())
    }
}
