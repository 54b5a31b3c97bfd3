//! One health check of a replica: its health and its model.
//!
//! Each check asks for the model too. A server that is replaced between two checks, also behind a
//! proxy, may have another model. The question is small, and no other sign covers each such change.

use std::time::Duration;

use tandem_common::call::BearerToken;
use tandem_common::pb::generate::v1::GetLoadedModelRequest;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::generate_service_server::SERVICE_NAME;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::patience::in_time;
use super::served_model::ReplicaModel;

/// Timeout of a check.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// Trace context of the checks. It asks the replica not to record them.
const NOT_RECORDED: &str = "00-00000000000000000000000000000001-0000000000000001-00";

/// The result of a check.
#[derive(Debug)]
pub(super) enum Answer {
    /// The replica serves this model.
    Serving(ReplicaModel),
    /// The replica serves, and is too busy to name its model.
    Busy(Status),
    /// The replica cannot be used.
    NotServing(Status),
    /// No answer came in time.
    Silence,
}

/// Asks a replica for its health and its model.
#[derive(Debug)]
pub(super) struct HealthCheck {
    health: HealthClient<Channel>,
    models: GenerateServiceClient<Channel>,
    token: Option<BearerToken>,
}

impl HealthCheck {
    /// Creates a check over `channel`.
    pub(super) fn new(channel: Channel, token: Option<BearerToken>) -> Self {
        let (health, models) = (HealthClient::new(channel.clone()), GenerateServiceClient::new(channel));
        Self { health, models, token }
    }

    /// Asks once.
    pub(super) async fn ask(&mut self) -> Answer {
        let Self { health, models, token } = self;
        let asked = async { tokio::join!(serving(health), model(models, token.as_ref())) };
        match in_time(CHECK_TIMEOUT, asked).await {
            None => Answer::Silence,
            Some((Err(status), _)) => Answer::NotServing(status),
            Some((Ok(()), Ok(model))) => Answer::Serving(model),
            Some((Ok(()), Err(status))) if is_overload(&status) => Answer::Busy(status),
            Some((Ok(()), Err(status))) => Answer::NotServing(status),
        }
    }
}

/// Fails unless the replica is SERVING. A server without a health service serves while it answers.
async fn serving(health: &mut HealthClient<Channel>) -> Result<(), Status> {
    let request = HealthCheckRequest { service: SERVICE_NAME.to_owned() };
    match health.check(request).await {
        Ok(response) if response.get_ref().status() == ServingStatus::Serving => Ok(()),
        Ok(_) => Err(Status::unavailable("health check reports NOT_SERVING")),
        Err(status) if status.code() == Code::Unimplemented || is_overload(&status) => Ok(()),
        Err(status) => Err(status),
    }
}

/// Returns the model that the replica serves.
async fn model(
    models: &mut GenerateServiceClient<Channel>,
    token: Option<&BearerToken>,
) -> Result<ReplicaModel, Status> {
    let mut request = Request::new(GetLoadedModelRequest::default());
    request.metadata_mut().insert("traceparent", MetadataValue::from_static(NOT_RECORDED));
    if let Some(token) = token {
        token.add_to(request.metadata_mut());
    }
    match models.get_loaded_model(request).await {
        Ok(response) => response.into_inner().model.map_or(Ok(ReplicaModel::Any), ReplicaModel::try_from),
        Err(status) if status.code() == Code::Unimplemented => Ok(ReplicaModel::Any),
        Err(status) => Err(status),
    }
}

/// Returns true if the replica rejects calls for now.
fn is_overload(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted
}
