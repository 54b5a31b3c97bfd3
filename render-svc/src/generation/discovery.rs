//! Which replicas stand behind a name.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tandem_common::call::Credentials;
use tandem_common::status::chain;
use tonic::transport::Uri;

use super::replica::Replica;
use super::{ANYWHERE, State};

/// How often names are looked up again.
const INTERVAL: Duration = Duration::from_secs(5);

/// A configured address: one replica, or a name with several behind it.
pub(super) struct Target {
    pub(super) uri: Uri,
    pub(super) credentials: Credentials,
    pub(super) state: Arc<State>,
}

impl Target {
    /// Looks the name up, again and again, and whether the files for TLS have changed. While that fails, what was found last counts.
    pub(super) async fn follow(self) {
        let mut version = self.credentials.version();
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.uri.port_u16().unwrap_or_default();
        loop {
            let now = self.credentials.version();
            let is_renewed = now.is_some() && now != version;
            match tokio::net::lookup_host((host.as_str(), port)).await {
                Ok(addresses) => {
                    self.update(&addresses.collect(), is_renewed);
                    version = now.or(version);
                }
                Err(error) => tracing::warn!(host, %error, "the generation service's name cannot be looked up"),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Adds the replicas that are new and drops those that are gone; with new credentials, all are new, unless they cannot be used. What
    /// runs on those that are dropped goes on.
    fn update(&self, addresses: &BTreeSet<SocketAddr>, is_renewed: bool) {
        if is_renewed && let Err(error) = self.credentials.endpoint(&self.uri, ANYWHERE) {
            tracing::error!(target = %self.uri, "what was read before counts: {}", chain(&error));
            return;
        }
        let mut replicas = self.state.replicas.write().unwrap_or_else(PoisonError::into_inner);
        let before = replicas.len();
        let stays = |replica: &Replica| !is_renewed && addresses.contains(&replica.address());
        replicas.retain(|replica| replica.target() != &self.uri || stays(replica));
        let gone = before - replicas.len();
        let known: BTreeSet<_> =
            replicas.iter().filter(|replica| replica.target() == &self.uri).map(|replica| replica.address()).collect();
        let mut new = 0;
        for address in addresses.difference(&known) {
            match self.credentials.endpoint(&self.uri, *address) {
                Ok(endpoint) => {
                    let state = Arc::downgrade(&self.state);
                    replicas.push(Replica::new(self.uri.clone(), *address, endpoint, state));
                    new += 1;
                }
                Err(error) => tracing::error!(%address, "a replica cannot be called: {}", chain(&error)),
            }
        }
        drop(replicas);
        if new + gone > 0 {
            tracing::info!(target = %self.uri, new, gone, "replicas of the generation service");
            self.state.changed();
        }
    }
}
