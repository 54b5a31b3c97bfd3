//! The generation services that tasks use: which replicas there are, how they are, and which of them a task goes to.
//!
//! A task prefers the replica that others with the same start of a prompt went to, since that one still holds what was computed for
//! it, unless that replica has clearly more to do than its share. A replica that breaks down is avoided until it says that it is well.

mod discovery;
mod replica;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tandem_common::call::{BearerToken, CredentialsError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::Uri;

use crate::args::GenerationArgs;
use discovery::Target;
pub use replica::{Lease, Replica};

/// Tokens at the start of a prompt that tell where it goes: this many blocks of the generation service's memory.
const PREFIX: usize = 16 * BLOCK;
/// Tokens of a block.
const BLOCK: usize = 16;

/// To see whether credentials can be used.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The replicas of the generation service.
#[derive(Debug)]
pub struct Generation {
    state: Arc<State>,
    token: Option<BearerToken>,
    patience: Duration,
    discovery: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    replicas: RwLock<Vec<Arc<Replica>>>,
    /// Changes when a replica comes, goes, or becomes well.
    changed: watch::Sender<()>,
}

impl Generation {
    /// Looks for the replicas, from now on. None without an address.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub fn new(args: &GenerationArgs) -> Result<Option<Self>, CredentialsError> {
        if args.generate.is_empty() {
            return Ok(None);
        }
        let credentials = args.credentials();
        let state = Arc::new(State { replicas: RwLock::default(), changed: watch::Sender::new(()) });
        for uri in &args.generate {
            credentials.endpoint(uri, ANYWHERE)?;
        }
        let target =
            |uri: &Uri| Target { uri: uri.clone(), credentials: credentials.clone(), state: Arc::clone(&state) };
        // One that is named twice is one.
        let targets: HashSet<&Uri> = args.generate.iter().collect();
        let discovery = targets.into_iter().map(|uri| tokio::spawn(target(uri).follow())).collect();
        let token = credentials.token()?;
        let patience = Duration::from_secs(args.generate_patience_seconds);
        Ok(Some(Self { state, token, patience, discovery }))
    }

    /// How many replicas there are in each state of health.
    #[must_use]
    pub fn healths(&self) -> Vec<(&'static str, usize)> {
        let replicas = self.state.replicas();
        let count = |is: fn(&Replica) -> bool| replicas.iter().filter(|replica| is(replica)).count();
        let (well, unknown) = (count(Replica::is_well), count(Replica::is_unknown));
        vec![("well", well), ("unknown", unknown), ("unwell", replicas.len() - well - unknown)]
    }

    /// Tasks that replicas have of ours.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.state.replicas().iter().map(|replica| replica.tasks()).sum()
    }

    /// The token that calls carry.
    #[must_use]
    pub fn token(&self) -> Option<&BearerToken> {
        self.token.as_ref()
    }

    /// The replica for a prompt, but for those that it has been tried with. Waits for one, though no longer than `patience` and not past
    /// the deadline. None if there is none.
    pub async fn pick(&self, key: PrefixKey, tried: &HashSet<u64>, deadline: Option<Instant>) -> Option<Lease> {
        let until = Instant::now() + self.patience;
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let mut changed = self.state.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let replicas = self.state.replicas();
            if let Some(replica) = choose(&replicas, key, tried) {
                return Some(Lease::new(replica));
            }
            // All that there are have been tried, and none of them is to be waited for.
            let is_hopeless = !replicas.is_empty() && replicas.iter().all(|replica| tried.contains(&replica.id()));
            if is_hopeless || tokio::time::timeout_at(until, changed.changed()).await.is_err() {
                return None;
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.discovery.iter().for_each(JoinHandle::abort);
    }
}

impl State {
    fn replicas(&self) -> Vec<Arc<Replica>> {
        self.replicas.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn changed(&self) {
        self.changed.send_replace(());
    }
}

/// Where prompts that start alike belong.
#[derive(Debug, Clone, Copy)]
pub struct PrefixKey(u64);

impl PrefixKey {
    /// Of the whole blocks at the start of a prompt; what follows does not count.
    #[must_use]
    pub fn new(salt: &str, token_ids: &[u32]) -> Self {
        let blocks = token_ids.len().min(PREFIX) / BLOCK;
        let mut hasher = DefaultHasher::new();
        (salt, &token_ids[..blocks * BLOCK]).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// How strongly they belong to a replica: every caller gets the same, whatever other replicas there are.
    fn affinity(self, replica: &Replica) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0, replica.id()).hash(&mut hasher);
        hasher.finish()
    }
}

/// The replica that the key belongs to most (rendezvous hashing), of those that are well and have no more than a quarter above their
/// share to do; if none is known to be well, of those of which nothing is known.
fn choose(replicas: &[Arc<Replica>], key: PrefixKey, tried: &HashSet<u64>) -> Option<Arc<Replica>> {
    let untried = || replicas.iter().filter(|replica| !tried.contains(&replica.id()));
    let mut candidates: Vec<_> = untried().filter(|replica| replica.is_well()).collect();
    if candidates.is_empty() {
        candidates = untried().filter(|replica| replica.is_unknown()).collect();
    }
    let total: usize = candidates.iter().map(|replica| replica.tasks()).sum();
    let most = ((total + 1) * 5).div_ceil(4 * candidates.len().max(1));
    candidates.retain(|replica| replica.tasks() < most);
    candidates.into_iter().max_by_key(|replica| key.affinity(replica)).cloned()
}
