//! The standard health service, `grpc.health.v1`.

use http::Request;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthApi, HealthServer};
use tonic_health::server::{HealthReporter, HealthService};

/// The maximum size of a health check, which contains one service name. It needs no credentials, so
/// its limit is lower than the limit of other requests.
const MAX_MESSAGE_BYTES: usize = 1 << 10;

/// The health of this process: one status for all its services, NOT_SERVING until it is set.
#[derive(Debug, Clone)]
pub struct Health {
    names: Vec<&'static str>,
    reporter: HealthReporter,
}

impl Health {
    /// Creates the health of the gRPC services with these full names.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        Self { names: names.into_iter().collect(), reporter: HealthReporter::new() }
    }

    /// Reports SERVING or NOT_SERVING, for every service and for the process as a whole.
    pub async fn set(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in self.names.iter().copied().chain([""]) {
            self.reporter.set_service_status(name, status).await;
        }
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

/// Returns true if the request is for one of gRPC's standard services: health or reflection.
pub(super) fn is_grpc_service<B>(request: &Request<B>) -> bool {
    request.uri().path().starts_with("/grpc.")
}
