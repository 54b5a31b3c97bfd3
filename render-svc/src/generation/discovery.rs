//! Which replicas stand behind a name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tandem_common::call::{Credentials, CredentialsError};
use tandem_common::status::chain;
use tonic::transport::Uri;

use super::State;
use super::replica::Replica;

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
                    match self.update(&addresses.collect(), is_renewed) {
                        Ok(()) => {}
                        Err(error) => tracing::error!(host, "what was there before stays: {}", chain(&error)),
                    }
                    version = now.or(version);
                }
                Err(error) => tracing::warn!(host, %error, "the generation service's name cannot be looked up"),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Adds the replicas that are new and drops those that are gone; with new credentials, connects to all others once more. What runs
    /// goes on as it does.
    ///
    /// # Errors
    /// The credentials cannot be used; then nothing has changed.
    fn update(&self, addresses: &BTreeSet<SocketAddr>, is_renewed: bool) -> Result<(), CredentialsError> {
        let ours = |replica: &Replica| replica.target() == &self.uri;
        let known = self.state.replicas().into_iter().filter(|replica| ours(replica));
        let known: BTreeMap<_, _> = known.map(|replica| (replica.address(), replica)).collect();
        let called = addresses.iter().filter(|address| is_renewed || !known.contains_key(address));
        let endpoint = |address: &SocketAddr| Ok((*address, self.credentials.endpoint(&self.uri, *address)?));
        let endpoints: Vec<_> = called.map(endpoint).collect::<Result<_, _>>()?;
        // Nobody else adds ours, or takes them away.
        let mut replicas = self.state.replicas.write().unwrap_or_else(PoisonError::into_inner);
        let before = replicas.len();
        replicas.retain(|replica| !ours(replica) || addresses.contains(&replica.address()));
        let (gone, mut new) = (before - replicas.len(), 0);
        for (address, endpoint) in endpoints {
            let state = Arc::downgrade(&self.state);
            match known.get(&address) {
                Some(replica) => replica.renew(endpoint, state),
                None => {
                    replicas.push(Replica::new(self.uri.clone(), address, endpoint, state));
                    new += 1;
                }
            }
        }
        drop(replicas);
        if new + gone > 0 {
            tracing::info!(target = %self.uri, new, gone, "replicas of the generation service");
            self.state.changed();
        }
        Ok(())
    }
}
