//! `grpc.health.v1` for a service and its parts.

use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthApi, HealthServer};
use tonic_health::server::{HealthReporter, HealthService};

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

    pub(super) fn server(&self) -> HealthServer<impl HealthApi> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }
}
