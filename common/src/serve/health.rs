//! `grpc.health.v1` for a service and its parts.

use http::Request;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthApi, HealthServer};
use tonic_health::server::{HealthReporter, HealthService};

/// Names of services are short, and whoever asks need not say who it is.
const MAX_MESSAGE_BYTES: usize = 1 << 10;

/// What health reports for this process: one status for all its services, NOT_SERVING until it is served.
#[derive(Debug, Clone)]
pub struct Health {
    names: Vec<&'static str>,
    reporter: HealthReporter,
}

impl Health {
    /// `names` are the full names of the gRPC services that this process serves.
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

    /// Ends all streams that watch.
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

/// Whether a call asks for health: that needs no credentials, and no place among the calls.
pub(super) fn is_health<B>(request: &Request<B>) -> bool {
    request.uri().path().starts_with("/grpc.health.v1.Health/")
}
