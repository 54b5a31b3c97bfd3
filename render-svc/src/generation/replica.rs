//! One replica: its connection, its health, and the number of its tasks.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::generate_service_server::SERVICE_NAME;
use tandem_common::telemetry::{Traced, traced};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Timeout for a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two HTTP/2 pings on a connection, and the timeout of each.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest pause between two health checks of an unhealthy replica.
const MIN_HEALTH_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between two health checks of an unhealthy replica.
const MAX_HEALTH_PAUSE: Duration = Duration::from_secs(2);

/// A replica of the generation service.
#[derive(Debug)]
pub(super) struct Replica {
    target: Uri,
    address: SocketAddr,
    id: u64,
    client: RwLock<GenerateServiceClient<Traced>>,
    tasks: AtomicUsize,
    health: AtomicU8,
    /// Notified after a failed call, to check the health again.
    suspected: Arc<Notify>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

/// Health of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Health {
    Unknown,
    Healthy,
    Unhealthy,
}

impl Replica {
    /// Creates a replica that connects at its first call, and watches its health until it is
    /// dropped.
    ///
    /// `changed` is signalled after each change of its health.
    pub(super) fn new(target: Uri, address: SocketAddr, endpoint: Endpoint, changed: watch::Sender<()>) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        (target.host(), address).hash(&mut hasher);
        let channel = connect(endpoint);
        let replica = Arc::new(Self {
            id: hasher.finish(),
            client: RwLock::new(client(&channel)),
            tasks: AtomicUsize::new(0),
            health: AtomicU8::new(Health::Unknown as u8),
            suspected: Arc::default(),
            watcher: Mutex::new(None),
            target,
            address,
        });
        replica.watch(channel, changed);
        replica
    }

    /// Replaces the connection. Running calls stay on the previous one.
    pub(super) fn renew(self: &Arc<Self>, endpoint: Endpoint, changed: watch::Sender<()>) {
        let channel = connect(endpoint);
        *self.client.write() = client(&channel);
        self.watch(channel, changed);
    }

    /// Watches the health over `channel`, in place of the previous watcher.
    fn watch(self: &Arc<Self>, channel: Channel, changed: watch::Sender<()>) {
        let (replica, client) = (Arc::downgrade(self), HealthClient::new(channel));
        let watcher = Watcher { replica, client, suspected: Arc::clone(&self.suspected), changed };
        let mut current = self.watcher.lock();
        if let Some(previous) = current.replace(tokio::spawn(watcher.run())) {
            previous.abort();
        }
    }

    /// Returns the configured address that the replica was found behind.
    pub(super) fn target(&self) -> &Uri {
        &self.target
    }

    /// Returns the replica's own address.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a hash of host name and address, equal in every render service.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of tasks that this render service runs on the replica.
    pub(super) fn tasks(&self) -> usize {
        self.tasks.load(Ordering::Relaxed)
    }

    /// Returns true if the last health check succeeded.
    pub(super) fn is_healthy(&self) -> bool {
        self.health.load(Ordering::Relaxed) == Health::Healthy as u8
    }

    /// Returns true if no health check has finished yet.
    pub(super) fn is_unknown(&self) -> bool {
        self.health.load(Ordering::Relaxed) == Health::Unknown as u8
    }

    /// Sets the health. Returns true if it changes.
    fn set_health(&self, health: Health) -> bool {
        self.health.swap(health as u8, Ordering::Relaxed) != health as u8
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.get_mut() {
            watcher.abort();
        }
    }
}

fn connect(endpoint: Endpoint) -> Channel {
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).http2_keep_alive_interval(KEEPALIVE_INTERVAL);
    endpoint.keep_alive_timeout(KEEPALIVE_INTERVAL).keep_alive_while_idle(true).connect_lazy()
}

fn client(channel: &Channel) -> GenerateServiceClient<Traced> {
    GenerateServiceClient::new(traced(channel.clone())).max_decoding_message_size(usize::MAX)
}

/// Watches the health of one replica.
struct Watcher {
    replica: Weak<Replica>,
    client: HealthClient<Channel>,
    suspected: Arc<Notify>,
    changed: watch::Sender<()>,
}

impl Watcher {
    /// Watches the health until the replica is dropped.
    async fn run(mut self) {
        let mut pause = MIN_HEALTH_PAUSE;
        loop {
            let ended = self.listen(&mut pause).await;
            // A server without a health service is healthy while it answers.
            let is_answered = ended.code() == Code::Unimplemented;
            let health = if is_answered { Health::Healthy } else { Health::Unhealthy };
            if !self.record(health, ended.message()) {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_HEALTH_PAUSE);
        }
    }

    /// Follows one health watch call. Returns why it ended.
    async fn listen(&mut self, pause: &mut Duration) -> Status {
        let request = HealthCheckRequest { service: SERVICE_NAME.to_owned() };
        let mut changes = match self.client.watch(request).await {
            Ok(changes) => changes.into_inner(),
            Err(status) => return status,
        };
        loop {
            let change = tokio::select! {
                change = changes.message() => change,
                () = self.suspected.notified() => return Status::unavailable("a call to the replica failed"),
            };
            match change {
                Ok(Some(change)) if change.status() == ServingStatus::Serving => *pause = MIN_HEALTH_PAUSE,
                // Starts a new call: behind a proxy, another server may answer it.
                Ok(Some(_)) => return Status::unavailable("health check reports NOT_SERVING"),
                Ok(None) => return Status::unavailable("health watch ended"),
                Err(status) => return status,
            }
            if !self.record(Health::Healthy, "health check reports SERVING") {
                return Status::cancelled("the replica was removed");
            }
        }
    }

    /// Records the health and signals a change. Returns false if the replica was dropped.
    fn record(&self, health: Health, reason: &str) -> bool {
        let Some(replica) = self.replica.upgrade() else { return false };
        if replica.set_health(health) {
            tracing::info!(replica = %replica.address, ?health, reason, "replica health changed");
            self.changed.send_replace(());
        }
        true
    }
}

/// A task's use of a replica, included in [`Replica::tasks`] until it is dropped.
#[derive(Debug)]
pub(super) struct Lease(Arc<Replica>);

impl Lease {
    /// Adds a task to the replica.
    pub(super) fn new(replica: Arc<Replica>) -> Self {
        replica.tasks.fetch_add(1, Ordering::Relaxed);
        Self(replica)
    }

    /// Returns a client for calls to the replica.
    pub(super) fn client(&self) -> GenerateServiceClient<Traced> {
        self.0.client.read().clone()
    }

    /// Returns the replica.
    pub(super) fn replica(&self) -> &Replica {
        &self.0
    }

    /// Marks the replica as unhealthy after a failed call, until its next successful health check.
    pub(super) fn mark_failed(&self) {
        self.0.set_health(Health::Unhealthy);
        self.0.suspected.notify_one();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.tasks.fetch_sub(1, Ordering::Relaxed);
    }
}
