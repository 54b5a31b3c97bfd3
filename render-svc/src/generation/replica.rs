//! One replica: its connection, how it is, and how much it has to do for us.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::generate_service_server::SERVICE_NAME;
use tandem_common::telemetry::{Traced, traced};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::State;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(2);
/// How often a silent connection is asked whether it is there, and how long it may take to say so.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// The pauses before a replica that is not well is looked at again, from the first to the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// A replica of the generation service.
#[derive(Debug)]
pub struct Replica {
    target: Uri,
    address: SocketAddr,
    id: u64,
    client: RwLock<GenerateServiceClient<Traced>>,
    tasks: AtomicUsize,
    health: AtomicU8,
    /// Told when a call to it broke, whatever it said of its health before.
    suspected: Arc<Notify>,
    watching: Mutex<Option<JoinHandle<()>>>,
}

fn connect(endpoint: Endpoint) -> Channel {
    let endpoint = endpoint.connect_timeout(CONNECT).http2_keep_alive_interval(KEEPALIVE);
    endpoint.keep_alive_timeout(KEEPALIVE).keep_alive_while_idle(true).connect_lazy()
}

fn client(channel: &Channel) -> GenerateServiceClient<Traced> {
    GenerateServiceClient::new(traced(channel.clone())).max_decoding_message_size(usize::MAX)
}

/// How a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Health {
    Unknown,
    Well,
    Unwell,
}

impl Replica {
    /// Connects lazily, and watches its health until it is dropped.
    pub(super) fn new(target: Uri, address: SocketAddr, endpoint: Endpoint, state: Weak<State>) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        (target.host(), address).hash(&mut hasher);
        let channel = connect(endpoint);
        let replica = Arc::new(Self {
            id: hasher.finish(),
            client: RwLock::new(client(&channel)),
            tasks: AtomicUsize::new(0),
            health: AtomicU8::new(Health::Unknown as u8),
            suspected: Arc::default(),
            watching: Mutex::new(None),
            target,
            address,
        });
        replica.watch(channel, state);
        replica
    }

    /// Connects once more, in another way. What is under way on the connection before goes on there.
    pub(super) fn renew(self: &Arc<Self>, endpoint: Endpoint, state: Weak<State>) {
        let channel = connect(endpoint);
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = client(&channel);
        self.watch(channel, state);
    }

    /// Watches its health from now on, and no more as it did before.
    fn watch(self: &Arc<Self>, channel: Channel, state: Weak<State>) {
        let (replica, client) = (Arc::downgrade(self), HealthClient::new(channel));
        let watching = Watching { replica, client, suspected: Arc::clone(&self.suspected), state };
        let mut watched = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = watched.replace(tokio::spawn(watching.run())) {
            before.abort();
        }
    }

    /// What was configured.
    #[must_use]
    pub fn target(&self) -> &Uri {
        &self.target
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same for everyone who knows it by the same name and address.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Tasks that it has of ours.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.load(Ordering::Relaxed)
    }

    pub(super) fn is_well(&self) -> bool {
        self.health.load(Ordering::Relaxed) == Health::Well as u8
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.health.load(Ordering::Relaxed) == Health::Unknown as u8
    }

    /// Takes note of how it is. Whether it was otherwise.
    fn set(&self, health: Health) -> bool {
        self.health.swap(health as u8, Ordering::Relaxed) != health as u8
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(watching) = self.watching.get_mut().unwrap_or_else(PoisonError::into_inner) {
            watching.abort();
        }
    }
}

/// What keeps an eye on a replica.
struct Watching {
    replica: Weak<Replica>,
    client: HealthClient<Channel>,
    suspected: Arc<Notify>,
    state: Weak<State>,
}

impl Watching {
    /// Asks the replica how it is and listens for changes, again and again, for as long as there is one.
    async fn run(mut self) {
        let [mut pause, longest] = PAUSES;
        loop {
            let ended = self.listen(&mut pause).await;
            // Without a health service, a replica that answers is well.
            let health = if ended.code() == Code::Unimplemented { Health::Well } else { Health::Unwell };
            if !self.note(health, ended.message()) {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Until the replica tells no more, or is not to be believed.
    async fn listen(&mut self, pause: &mut Duration) -> Status {
        let request = HealthCheckRequest { service: SERVICE_NAME.to_owned() };
        let mut changes = match self.client.watch(request).await {
            Ok(changes) => changes.into_inner(),
            Err(status) => return status,
        };
        loop {
            let change = tokio::select! {
                change = changes.message() => change,
                () = self.suspected.notified() => return Status::unavailable("a call to it broke"),
            };
            match change {
                Ok(Some(change)) if change.status() == ServingStatus::Serving => *pause = PAUSES[0],
                // It is asked again: behind a proxy, another may answer.
                Ok(Some(_)) => return Status::unavailable("it says that it is not well"),
                Ok(None) => return Status::unavailable("it ended the connection"),
                Err(status) => return status,
            }
            if !self.note(Health::Well, "by its own account") {
                return Status::cancelled("it is gone");
            }
        }
    }

    /// Takes note of how it is, and tells who waits. Whether there still is a replica.
    fn note(&self, health: Health, why: &str) -> bool {
        let Some(replica) = self.replica.upgrade() else { return false };
        if replica.set(health) {
            tracing::info!(replica = %replica.address, ?health, "replica: {why}");
            if let Some(state) = self.state.upgrade() {
                state.changed();
            }
        }
        true
    }
}

/// A task's hold on a replica: as long as it lasts, the replica has that much more to do.
#[derive(Debug)]
pub struct Lease(Arc<Replica>);

impl Lease {
    pub(super) fn new(replica: Arc<Replica>) -> Self {
        replica.tasks.fetch_add(1, Ordering::Relaxed);
        Self(replica)
    }

    /// To call it.
    #[must_use]
    pub fn client(&self) -> GenerateServiceClient<Traced> {
        self.0.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The replica.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.0
    }

    /// It broke down in the middle of a task. It is avoided until it is asked again, soon, and says that it is well.
    pub fn broke(&self) {
        self.0.set(Health::Unwell);
        self.0.suspected.notify_one();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.tasks.fetch_sub(1, Ordering::Relaxed);
    }
}
