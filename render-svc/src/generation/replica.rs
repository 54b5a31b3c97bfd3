//! One replica: its connection, its health, and the number of its tasks.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};
use tandem_common::call::{BearerToken, ConnectionProblem};
use tandem_common::log_limit::LogLimit;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::telemetry::{Traced, traced};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Uri};

use super::ejection::{Ejection, Entry};
use super::health::{Answer, CHECK_TIMEOUT, HealthCheck};
use super::pace::Pace;
use super::served_model::ReplicaModel;
use crate::agreed_hash::AgreedHash;
use crate::error::Error;
use crate::task::generator::FailureClass;
use crate::task::model_names::ModelNames;

/// Timeout for a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two health checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Health checks in a row without an answer after which a replica is unhealthy.
const MAX_SILENCES: u32 = 2;
/// Shortest pause between two health checks.
const MIN_HEALTH_PAUSE: Duration = Duration::from_millis(50);
/// Bytes of an output that a replica may send ahead. The transport reports half of them together as read. So
/// a slow reader reports in time, and the replica does not close the connection, which other tasks share.
const STREAM_WINDOW: u32 = 32 << 10;
/// Failures in a row, without a successful task between them, after which a replica is ejected.
const MAX_FAILURES: u32 = 5;
/// Time within which outputs that a replica ends early count as one failure.
const EARLY_END_INTERVAL: Duration = Duration::from_secs(1);
/// Time of events after which the first output after an ejection is a success.
const PROBE_TIME: Duration = Duration::from_secs(10);
/// Largest message of a replica. The largest of an honest one has the log probabilities of a step's
/// prompt tokens, at most some megabytes. In memory, a message can take 26 times its size.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

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
    ejection: Mutex<Ejection>,
    /// Times that it failed after a successful health check, since the last task that succeeded.
    failures: AtomicU32,
    /// The speed of its outputs since its last return from an ejection.
    pace: Mutex<Pace>,
    /// When it last accepted a task.
    accepted: Mutex<Option<Instant>>,
    /// When an output that it ended early was last counted as a failure.
    early_end: Mutex<Option<Instant>>,
    /// The reason of its last failed health check.
    problem: Mutex<String>,
    problem_limit: LogLimit,
    has_warned_of_skew: AtomicBool,
    has_warned_of_another_id: AtomicBool,
    /// Notified after a failed call, to check the health again.
    suspected: Arc<Notify>,
    token: Option<BearerToken>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

/// Time between two log lines of why a replica is unhealthy.
const PROBLEM_INTERVAL: Duration = Duration::from_secs(60);

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
        let host = target.host().unwrap_or_default();
        let id = AgreedHash::EMPTY.bytes(host.as_bytes()).bytes(address.to_string().as_bytes());
        let channel = connect(endpoint.clone());
        let replica = Arc::new(Self {
            id: id.finish(),
            client: RwLock::new(client(&channel)),
            tasks: AtomicUsize::new(0),
            health: AtomicU8::new(Health::Unknown as u8),
            model: RwLock::new(Arc::new(ReplicaModel::Unknown)),
            ejection: Mutex::default(),
            failures: AtomicU32::new(0),
            pace: Mutex::default(),
            accepted: Mutex::default(),
            early_end: Mutex::default(),
            problem: Mutex::new("not asked yet".to_owned()),
            problem_limit: LogLimit::new(PROBLEM_INTERVAL),
            has_warned_of_skew: AtomicBool::new(false),
            has_warned_of_another_id: AtomicBool::new(false),
            token,
            suspected: Arc::default(),
            watcher: Mutex::new(None),
            target,
            address,
        });
        replica.watch(channel, endpoint, changed);
        replica
    }

    /// Replaces the connection. Running calls stay on the previous one.
    pub(super) fn renew(self: &Arc<Self>, endpoint: Endpoint, changed: watch::Sender<()>) {
        let channel = connect(endpoint.clone());
        *self.client.write() = client(&channel);
        self.watch(channel, endpoint, changed);
    }

    /// Watches the health over `channel`, a connection to `endpoint`, in place of the previous
    /// watcher.
    fn watch(self: &Arc<Self>, channel: Channel, endpoint: Endpoint, changed: watch::Sender<()>) {
        let watcher = Watcher {
            replica: Arc::downgrade(self),
            check: HealthCheck::new(channel, self.token.clone()),
            endpoint,
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

    /// Returns the end of its last ejection, or None if a task has succeeded since.
    pub(super) fn ejected_until(&self) -> Option<Instant> {
        self.ejection.lock().until()
    }

    /// Returns true if it is left out after an ejection.
    pub(super) fn is_ejected(&self) -> bool {
        self.ejection.lock().is_closed(Instant::now())
    }

    /// Returns true if no health check has finished yet.
    pub(super) fn is_unknown(&self) -> bool {
        self.health.load(Ordering::Relaxed) == Health::Unknown as u8
    }

    /// Returns the speed of its outputs, to read or to add to.
    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock()
    }

    /// Records that it accepts a task.
    pub(super) fn record_acceptance(&self) {
        *self.accepted.lock() = Some(Instant::now());
    }

    /// Returns when it last accepted a task of this service.
    pub(super) fn accepted(&self) -> Option<Instant> {
        *self.accepted.lock()
    }

    /// Returns the model that it serves.
    pub(super) fn model(&self) -> Arc<ReplicaModel> {
        Arc::clone(&self.model.read())
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

impl Replica {
    fn count_failure(&self, entry: Entry, problem: &dyn Display) {
        // A replica whose ejection has ended is on probation.
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_FAILURES || entry.is_probe {
            self.failures.store(0, Ordering::Relaxed);
            self.eject(entry, problem);
        }
    }

    fn eject(&self, entry: Entry, problem: &dyn Display) {
        self.suspected.notify_one();
        let Some(time) = self.ejection.lock().fail(entry, Instant::now()) else { return };
        tracing::warn!(replica = %self.address, seconds = time.as_secs(), %problem, "replica ejected");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.get_mut() {
            watcher.abort();
        }
    }
}

/// Connects without HTTP/2 pings: other servers close connections with many of them. Health checks
/// find a dead connection.
fn connect(endpoint: Endpoint) -> Channel {
    endpoint.connect_timeout(CONNECT_TIMEOUT).initial_stream_window_size(STREAM_WINDOW).connect_lazy()
}

fn client(channel: &Channel) -> GenerateServiceClient<Traced> {
    GenerateServiceClient::new(traced(channel.clone())).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

/// Checks the health of one replica at each interval.
struct Watcher {
    replica: Weak<Replica>,
    check: HealthCheck,
    endpoint: Endpoint,
    suspected: Arc<Notify>,
    changed: watch::Sender<()>,
}

impl Watcher {
    /// Checks the health until the replica is dropped.
    async fn run(mut self) {
        let (mut pause, mut silences) = (MIN_HEALTH_PAUSE, 0);
        loop {
            let start = Instant::now();
            let answer = self.check.ask().await;
            let Some(replica) = self.replica.upgrade() else { return };
            silences = if matches!(answer, Answer::Silence) { silences + 1 } else { 0 };
            self.record(&replica, answer, silences);
            if silences == MAX_SILENCES {
                self.reconnect(&replica);
                silences = 0;
            }
            pause = if replica.is_healthy() { CHECK_INTERVAL } else { (pause * 2).min(CHECK_INTERVAL) };
            drop(replica);
            tokio::time::sleep(MIN_HEALTH_PAUSE).await;
            tokio::select! {
                () = tokio::time::sleep_until(start + pause) => {}
                () = self.suspected.notified() => pause = MIN_HEALTH_PAUSE,
            }
        }
    }

    fn record(&self, replica: &Replica, answer: Answer, silences: u32) {
        match answer {
            Answer::Serving(model) => self.record_healthy(replica, Some(model)),
            Answer::Busy(_) if *replica.model() != ReplicaModel::Unknown => self.record_healthy(replica, None),
            Answer::Busy(status) | Answer::NotServing(status) => self.record_unhealthy(replica, &status),
            Answer::Silence if silences < MAX_SILENCES => {}
            Answer::Silence => {
                let text = format!("{silences} health checks in a row have no answer within {CHECK_TIMEOUT:?}");
                self.record_unhealthy(replica, &Status::deadline_exceeded(text));
            }
        }
    }

    /// Replaces a connection without answers: its other end may be gone. Running calls stay on it.
    fn reconnect(&mut self, replica: &Replica) {
        let channel = connect(self.endpoint.clone());
        *replica.client.write() = client(&channel);
        self.check = HealthCheck::new(channel, replica.token.clone());
    }

    /// Records that the replica serves, and which model if that is known, and signals a change.
    fn record_healthy(&self, replica: &Replica, model: Option<ReplicaModel>) {
        // The model comes first: a healthy replica is used at once.
        let has_new_model = model.is_some_and(|model| replica.set_model(model));
        if replica.set_health(Health::Healthy) || has_new_model {
            tracing::info!(replica = %replica.address, model = replica.model().id(), "replica is healthy");
            self.changed.send_replace(());
        }
    }

    /// Records why the replica cannot be used, and signals a change.
    fn record_unhealthy(&self, replica: &Replica, status: &Status) {
        let problem = causes(status);
        let is_new = std::mem::replace(&mut *replica.problem.lock(), problem.clone()) != problem;
        let has_changed = replica.set_health(Health::Unhealthy);
        // The causes of one failure can alternate.
        if has_changed || (is_new && replica.problem_limit.permit().is_some()) {
            tracing::warn!(replica = %replica.address, problem, "replica is unhealthy");
        }
        if has_changed {
            self.changed.send_replace(());
        }
    }
}

/// Returns the message of a status, its causes, and what to do if that is known. A transport's
/// message alone does not say whether the connection or the TLS handshake failed.
fn causes(status: &Status) -> String {
    let first = std::error::Error::source(status);
    let causes = std::iter::successors(first, |cause| cause.source()).map(ToString::to_string);
    let mut parts: Vec<_> = std::iter::once(status.message().to_owned()).chain(causes).collect();
    parts.dedup();
    let text = parts.join(": ");
    let remedy = ConnectionProblem::find(&text).map(|problem| format!("; {}", problem.remedy()));
    text + &remedy.unwrap_or_default()
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

/// A replica that refused a task or failed inside, until another one gets further with the task or refuses it.
#[derive(Debug, Clone)]
pub(super) struct Doubt {
    replica: Arc<Replica>,
    entry: Entry,
    problem: String,
    /// The class of the failure.
    pub(super) class: FailureClass,
    /// True if a replica had accepted the task before.
    pub(super) was_accepted: bool,
}

impl Doubt {
    /// Records that another replica got further with the task.
    pub(super) fn resolve(&self) {
        let problem = format!("another replica ran a task after {}", self.problem);
        self.replica.count_failure(self.entry, &problem);
    }
}

/// A task's use of a replica, included in [`Replica::tasks`] until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    chosen: Candidate,
    entry: Entry,
    start: Instant,
}

impl Lease {
    /// Adds a task to the replica. Returns None if the replica is left out after an ejection.
    pub(super) fn take(chosen: &Candidate) -> Option<Self> {
        let entry = chosen.replica.ejection.lock().enter(Instant::now())?;
        Some(Self::new(chosen, entry))
    }

    /// Adds a task to a replica that is left out.
    pub(super) fn take_anyway(chosen: &Candidate) -> Self {
        let entry = chosen.replica.ejection.lock().enter_anyway();
        Self::new(chosen, entry)
    }

    fn new(chosen: &Candidate, entry: Entry) -> Self {
        chosen.replica.tasks.fetch_add(1, Ordering::Relaxed);
        Self { chosen: chosen.clone(), entry, start: Instant::now() }
    }

    /// Returns a client for calls to the replica.
    pub(super) fn client(&self) -> GenerateServiceClient<Traced> {
        self.chosen.replica.client.read().clone()
    }

    /// Returns the replica.
    pub(super) fn replica(&self) -> &Replica {
        &self.chosen.replica
    }

    /// Returns the replica's model, as it was compared with the task's.
    pub(super) fn model(&self) -> &ReplicaModel {
        &self.chosen.model
    }

    /// Returns true for the only task of a replica whose ejection has ended.
    pub(super) fn is_probe(&self) -> bool {
        self.entry.is_probe
    }

    /// Marks the replica as unhealthy after a failed call, until its next successful health check. Returns
    /// true if it was not.
    pub(super) fn mark_failed(&self) -> bool {
        let has_changed = self.replica().set_health(Health::Unhealthy);
        self.replica().suspected.notify_one();
        has_changed
    }

    /// Marks the replica as unhealthy, as [`mark_failed`](Self::mark_failed), and ejects it if it often fails
    /// although its health checks succeed. All calls that fail together count once.
    pub(super) fn record_failure(&self, problem: &Error) {
        if self.mark_failed() {
            self.replica().count_failure(self.entry, problem);
        }
    }

    /// Returns the doubt whether the replica or the task is at fault. `was_accepted`: a replica had accepted the
    /// task before.
    pub(super) fn doubt(&self, class: FailureClass, problem: &Error, was_accepted: bool) -> Doubt {
        let (replica, problem) = (Arc::clone(&self.chosen.replica), problem.to_string());
        Doubt { replica, entry: self.entry, problem, class, was_accepted }
    }

    /// Records that the replica ended an output early, for example because its model failed. A replica that
    /// drains does so, too: all such ends within a second count as one failure.
    pub(super) fn record_early_end(&self, problem: &Error) {
        let mut counted = self.replica().early_end.lock();
        if counted.is_some_and(|counted| counted.elapsed() < EARLY_END_INTERVAL) {
            return;
        }
        *counted = Some(Instant::now());
        drop(counted);
        self.replica().count_failure(self.entry, problem);
    }

    /// Records that the task ended at its deadline because of the replica.
    pub(super) fn record_expiry(&self, problem: &Error) {
        self.replica().count_failure(self.entry, problem);
    }

    /// Ejects the replica, which is stuck or breaks the contract.
    pub(super) fn eject(&self, problem: &Error) {
        self.replica().eject(self.entry, problem);
    }

    /// Records an event of the replica's output. An output that has run for a while is a success.
    pub(super) fn record_event(&self) {
        if self.entry.is_probe && self.start.elapsed() >= PROBE_TIME {
            self.record_success();
        }
    }

    /// Records that the task has succeeded.
    pub(super) fn record_success(&self) {
        self.replica().failures.store(0, Ordering::Relaxed);
        if self.replica().ejection.lock().succeed(self.entry, Instant::now()) {
            *self.replica().pace.lock() = Pace::default();
            tracing::warn!(replica = %self.replica().address, "replica returned after its ejection");
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.chosen.replica.tasks.fetch_sub(1, Ordering::Relaxed);
        self.chosen.replica.ejection.lock().leave(self.entry);
    }
}
