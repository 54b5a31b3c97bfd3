//! One replica: its connection, its health, and the number of its tasks.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tandem_common::call::BearerToken;
use tandem_common::pb::generate::v1::GetModelRequest;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::generate_service_server::SERVICE_NAME;
use tandem_common::telemetry::{Traced, traced};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::served_model::ReplicaModel;
use crate::task::model_names::ModelNames;

/// Timeout for a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two HTTP/2 pings on a connection, and the timeout of each.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of the question for a replica's model, and of the first answer of a health watch.
const MODEL_TIMEOUT: Duration = Duration::from_secs(5);
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
    /// The model that it serves, as of its last successful health check.
    model: RwLock<Arc<ReplicaModel>>,
    /// The reason of its last failed health check.
    problem: Mutex<String>,
    has_warned_of_skew: AtomicBool,
    has_warned_of_another_id: AtomicBool,
    /// Notified after a failed call, to check the health again.
    suspected: Arc<Notify>,
    token: Option<BearerToken>,
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
    /// `changed` is signalled after each change of its health or model.
    pub(super) fn new(
        target: Uri,
        address: SocketAddr,
        endpoint: Endpoint,
        token: Option<BearerToken>,
        changed: watch::Sender<()>,
    ) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        (target.host(), address).hash(&mut hasher);
        let channel = connect(endpoint);
        let replica = Arc::new(Self {
            id: hasher.finish(),
            client: RwLock::new(client(&channel)),
            tasks: AtomicUsize::new(0),
            health: AtomicU8::new(Health::Unknown as u8),
            model: RwLock::new(Arc::new(ReplicaModel::Unknown)),
            problem: Mutex::new("not asked yet".to_owned()),
            has_warned_of_skew: AtomicBool::new(false),
            has_warned_of_another_id: AtomicBool::new(false),
            token,
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
        let watcher = Watcher {
            replica: Arc::downgrade(self),
            health: HealthClient::new(channel.clone()),
            models: GenerateServiceClient::new(channel),
            token: self.token.clone(),
            suspected: Arc::clone(&self.suspected),
            changed,
        };
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

    /// Returns the model that it serves.
    pub(super) fn model(&self) -> Arc<ReplicaModel> {
        Arc::clone(&self.model.read())
    }

    /// Returns the reason of its last failed health check.
    pub(super) fn problem(&self) -> String {
        self.problem.lock().clone()
    }

    /// Warns, once for each model of the replica, that its tokenizer differs from this service's.
    pub(super) fn warn_of_skew(&self) {
        if !self.has_warned_of_skew.swap(true, Ordering::Relaxed) {
            tracing::warn!(replica = %self.address, model = self.model().id(), "tokenizer differs; replica gets no tasks");
        }
    }

    /// Warns, once for each model of the replica, that it is taken for a task's model by its
    /// tokenizer alone.
    pub(super) fn warn_of_another_id(&self, model: &ReplicaModel, wanted: &ModelNames) {
        if !self.has_warned_of_another_id.swap(true, Ordering::Relaxed) {
            let (replica_id, model_id) = (model.id(), wanted.own.first());
            let remedy = "set generate_id in the models' configuration";
            tracing::warn!(replica_id, model_id, remedy, "replica chosen by its tokenizer; its model's id differs");
        }
    }

    /// Sets the model. Returns true if it changes.
    fn set_model(&self, model: ReplicaModel) -> bool {
        let mut current = self.model.write();
        if **current == model {
            return false;
        }
        *current = Arc::new(model);
        self.has_warned_of_skew.store(false, Ordering::Relaxed);
        self.has_warned_of_another_id.store(false, Ordering::Relaxed);
        true
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

/// Watches the health of one replica, and asks for its model.
struct Watcher {
    replica: Weak<Replica>,
    health: HealthClient<Channel>,
    models: GenerateServiceClient<Channel>,
    token: Option<BearerToken>,
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
            let is_recorded = match ended.code() {
                Code::Unimplemented => match self.ask_for_model().await {
                    Ok(model) => self.record_healthy(model),
                    Err(status) => self.record_unhealthy(&status),
                },
                _ => self.record_unhealthy(&ended),
            };
            if !is_recorded {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_HEALTH_PAUSE);
        }
    }

    /// Follows one health watch call. Returns why it ended.
    async fn listen(&mut self, pause: &mut Duration) -> Status {
        let (mut changes, first) = match in_time("the health watch", self.start_watch()).await {
            Ok(started) => started,
            Err(status) => return status,
        };
        let mut change = Ok(first);
        loop {
            match change {
                Ok(Some(change)) if change.status() == ServingStatus::Serving => *pause = MIN_HEALTH_PAUSE,
                // Starts a new call: behind a proxy, another server may answer it.
                Ok(Some(_)) => return Status::unavailable("health check reports NOT_SERVING"),
                Ok(None) => return Status::unavailable("health watch ended"),
                Err(status) => return status,
            }
            // A replica is used only once its model is known.
            let model = match self.ask_for_model().await {
                Ok(model) => model,
                Err(status) => return status,
            };
            if !self.record_healthy(model) {
                return Status::cancelled("the replica was removed");
            }
            change = tokio::select! {
                change = changes.message() => change,
                () = self.suspected.notified() => return Status::unavailable("a call to the replica failed"),
            };
        }
    }

    /// Starts a health watch call. Returns it with its first answer.
    async fn start_watch(&mut self) -> Result<(Streaming<HealthCheckResponse>, Option<HealthCheckResponse>), Status> {
        let request = HealthCheckRequest { service: SERVICE_NAME.to_owned() };
        let mut changes = self.health.watch(request).await?.into_inner();
        let first = changes.message().await?;
        Ok((changes, first))
    }

    /// Asks the replica which model it serves.
    async fn ask_for_model(&mut self) -> Result<ReplicaModel, Status> {
        let mut request = Request::new(GetModelRequest::default());
        request.set_timeout(MODEL_TIMEOUT);
        if let Some(token) = &self.token {
            token.add_to(request.metadata_mut());
        }
        // tonic's timeout ends at the response's headers.
        match in_time("GetModel", self.models.get_model(request)).await {
            Ok(response) => response.into_inner().model.map_or(Ok(ReplicaModel::Any), ReplicaModel::try_from),
            Err(status) if status.code() == Code::Unimplemented => Ok(ReplicaModel::Any),
            Err(status) => Err(status),
        }
    }

    /// Records that the replica serves `model`, and signals a change. Returns false if the replica
    /// was dropped.
    fn record_healthy(&self, model: ReplicaModel) -> bool {
        let Some(replica) = self.replica.upgrade() else { return false };
        // The model comes first: a healthy replica is used at once.
        let has_new_model = replica.set_model(model);
        if replica.set_health(Health::Healthy) || has_new_model {
            tracing::info!(replica = %replica.address, model = replica.model().id(), "replica is healthy");
            self.changed.send_replace(());
        }
        true
    }

    /// Records why the replica cannot be used, and signals a change. Returns false if the replica
    /// was dropped.
    fn record_unhealthy(&self, status: &Status) -> bool {
        let Some(replica) = self.replica.upgrade() else { return false };
        let problem = causes(status);
        let is_new = std::mem::replace(&mut *replica.problem.lock(), problem.clone()) != problem;
        let has_changed = replica.set_health(Health::Unhealthy);
        if has_changed || is_new {
            tracing::warn!(replica = %replica.address, problem, "replica is unhealthy");
        }
        if has_changed {
            self.changed.send_replace(());
        }
        true
    }
}

/// Returns the result of a call, or an error if it takes longer than [`MODEL_TIMEOUT`].
async fn in_time<T>(name: &str, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded(format!("{name} has no answer after {MODEL_TIMEOUT:?}"));
    tokio::time::timeout(MODEL_TIMEOUT, call).await.map_err(late)?
}

/// Returns the message of a status, and its causes: a transport's message alone does not say
/// whether the connection or the TLS handshake failed.
fn causes(status: &Status) -> String {
    let first = std::error::Error::source(status);
    let causes = std::iter::successors(first, |cause| cause.source()).map(ToString::to_string);
    let mut parts: Vec<_> = std::iter::once(status.message().to_owned()).chain(causes).collect();
    parts.dedup();
    parts.join(": ")
}

/// A replica, and its model when it was compared with the task's.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) replica: Arc<Replica>,
    pub(super) model: Arc<ReplicaModel>,
}

impl From<&Arc<Replica>> for Candidate {
    fn from(replica: &Arc<Replica>) -> Self {
        Self { replica: Arc::clone(replica), model: replica.model() }
    }
}

/// A task's use of a replica, included in [`Replica::tasks`] until it is dropped.
#[derive(Debug)]
pub(super) struct Lease(Candidate);

impl Lease {
    /// Adds a task to the replica.
    pub(super) fn new(chosen: Candidate) -> Self {
        chosen.replica.tasks.fetch_add(1, Ordering::Relaxed);
        Self(chosen)
    }

    /// Returns a client for calls to the replica.
    pub(super) fn client(&self) -> GenerateServiceClient<Traced> {
        self.0.replica.client.read().clone()
    }

    /// Returns the replica.
    pub(super) fn replica(&self) -> &Replica {
        &self.0.replica
    }

    /// Returns the id of the replica's model, as it was compared with the task's.
    pub(super) fn model_id(&self) -> Option<&str> {
        self.0.model.id()
    }

    /// Marks the replica as unhealthy after a failed call, until its next successful health check.
    pub(super) fn mark_failed(&self) {
        self.0.replica.set_health(Health::Unhealthy);
        self.0.replica.suspected.notify_one();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.replica.tasks.fetch_sub(1, Ordering::Relaxed);
    }
}
