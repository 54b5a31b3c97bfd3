//! The standard health service, `grpc.health.v1`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Request;
use parking_lot::Mutex;
use tokio::sync::SetOnce;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthApi, HealthServer};
use tonic_health::server::{HealthReporter, HealthService};

use crate::pb;

/// The maximum size of a health check, which contains one service name. It needs no credentials, so
/// its limit is lower than the limit of other requests.
const MAX_MESSAGE_BYTES: usize = 1 << 10;

/// The health of this process: one status for all its services, NOT_SERVING until it is set.
#[derive(Debug, Clone)]
pub struct Health {
    names: Vec<&'static str>,
    reporter: HealthReporter,
    /// Services that report NOT_SERVING even while the process serves.
    unavailable: Arc<Mutex<HashSet<&'static str>>>,
    /// The service without which the process as a whole is not ready.
    required: Option<&'static str>,
    /// Held while a status is computed and reported, so that no older status replaces a newer one.
    reporting: Arc<tokio::sync::Mutex<()>>,
    is_serving: Arc<AtomicBool>,
    is_live: Arc<AtomicBool>,
    is_closed: Arc<AtomicBool>,
    /// Set once every service has reported SERVING for the first time.
    first_ready: Arc<SetOnce<()>>,
}

impl Health {
    /// Creates the health of the gRPC services with these full names.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            names: names.into_iter().collect(),
            reporter: HealthReporter::new(),
            unavailable: Arc::default(),
            required: None,
            reporting: Arc::default(),
            is_serving: Arc::default(),
            is_live: Arc::new(AtomicBool::new(true)),
            is_closed: Arc::default(),
            first_ready: Arc::default(),
        }
    }

    /// Makes the process ready only while this service is available, which it is not at first. The
    /// other services report SERVING without it.
    #[must_use]
    pub fn requiring(self, name: &'static str) -> Self {
        self.unavailable.lock().insert(name);
        Self { required: Some(name), ..self }
    }

    /// Reports SERVING or NOT_SERVING, for the process as a whole and for every service that is
    /// available. After [`close`](Self::close) it reports NOT_SERVING only.
    pub async fn set(&self, serving: bool) {
        self.is_serving.store(serving && !self.is_closed.load(Ordering::Relaxed), Ordering::Relaxed);
        for name in self.names.iter().copied().chain([""]) {
            self.report(name).await;
        }
        if self.is_serving() {
            let _ = self.first_ready.set(()); // fails after the first time
        }
    }

    /// Waits until health has reported SERVING for the first time.
    pub async fn ready(&self) {
        self.first_ready.wait().await;
    }

    /// Reports NOT_SERVING until the process ends.
    pub(super) async fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.set(false).await;
    }

    /// Sets whether one service can be used while the process serves. At first every service can.
    pub async fn set_available(&self, name: &'static str, is_available: bool) {
        if is_available {
            self.unavailable.lock().remove(name);
        } else {
            self.unavailable.lock().insert(name);
        }
        for name in [name, ""] {
            self.report(name).await;
        }
    }

    async fn report(&self, name: &'static str) {
        let _reporting = self.reporting.lock().await;
        let is_serving = if name.is_empty() { self.is_ready() } else { self.is_serving() && self.is_available(name) };
        let status = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.reporter.set_service_status(name, status).await;
    }

    /// Sets whether the process can recover without a restart, which is true at first.
    pub fn set_live(&self, is_live: bool) {
        self.is_live.store(is_live, Ordering::Relaxed);
    }

    /// Returns true while the process as a whole can be used.
    pub(super) fn is_ready(&self) -> bool {
        self.is_serving() && self.required.is_none_or(|name| self.is_available(name))
    }

    fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Relaxed)
    }

    fn is_available(&self, name: &str) -> bool {
        !self.unavailable.lock().contains(name)
    }

    pub(super) fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Relaxed)
    }

    /// Ends all Watch streams.
    pub(super) async fn end(&self) {
        let mut reporter = self.reporter.clone();
        for name in self.names.iter().copied().chain([""]) {
            reporter.clear_service_status(name).await;
        }
    }

    pub(super) fn server(&self) -> HealthServer<impl HealthApi> {
        let service = HealthService::from_health_reporter(self.reporter.clone());
        HealthServer::new(service).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

/// Returns true if the request is a health check. Health checks need no credentials and have a
/// separate call limit.
pub(super) fn is_health<B>(request: &Request<B>) -> bool {
    request.uri().path().starts_with("/grpc.health.v1.Health/")
}

/// Returns true if the request asks for the health once, which is answered without waiting.
pub(super) fn is_health_check<B>(request: &Request<B>) -> bool {
    request.uri().path() == "/grpc.health.v1.Health/Check"
}

/// Returns true if the request is for one of gRPC's standard services: health or reflection.
pub(super) fn is_grpc_service<B>(request: &Request<B>) -> bool {
    pb::is_standard_path(request.uri().path())
}
