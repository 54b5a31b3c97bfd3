//! The connection to render-svc: address, TLS, token, and a first call that shows whether it works.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tandem_common::call::{BearerToken, Credentials};
use tandem_common::pb::render::v1::registry_service_client::RegistryServiceClient;
use tandem_common::pb::render::v1::{ListModelsRequest, ModelInfo};
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tonic::Request;
use tonic::transport::Channel;

use crate::args::Connection;
use crate::diagnosis;
use crate::target::Target;

/// The time for each step towards the first answer of the service.
const PATIENCE: Duration = Duration::from_secs(10);
/// The system's certificate authorities, in the places of the common distributions.
const SYSTEM_CA: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A render-svc that answers.
#[derive(Debug)]
pub(crate) struct RenderService {
    channel: Channel,
    token: Option<BearerToken>,
    target: Target,
    model: ModelInfo,
    /// The model that requests name. Empty means the only one.
    requested: String,
}

impl RenderService {
    /// Connects, and finds the model with this id or alias, or the only one.
    pub(crate) async fn connect(connection: &Connection, model: Option<&Path>) -> Result<Self> {
        let target = Target::parse(connection)?;
        let credentials = credentials(connection, &target)?;
        let token = credentials.token().with_context(|| option("--token-file", connection.token_file.as_deref()))?;
        let address = reach(&target).await?;
        let endpoint = credentials.endpoint(&target.uri, address)?;
        let channel = timeout(PATIENCE, endpoint.connect()).await.map_err(|_| anyhow!("{target} does not answer"))?;
        let channel = channel.map_err(|error| diagnosis::of_connection(&target, connection, &error))?;
        let requested = model.map(|model| model.to_string_lossy().into_owned()).unwrap_or_default();
        let mut this = Self { channel, token, target, model: ModelInfo::default(), requested };
        this.model = this.find_model(connection, address).await?;
        Ok(this)
    }

    async fn find_model(&self, connection: &Connection, address: SocketAddr) -> Result<ModelInfo> {
        let mut registry = RegistryServiceClient::new(self.channel.clone());
        let listed = timeout(PATIENCE, registry.list_models(self.call(ListModelsRequest {}))).await;
        let models = match listed.map_err(|_| anyhow!("{} does not answer", self.target))? {
            Ok(response) => response.into_inner().models,
            Err(status) => return Err(diagnosis::of_call(&self.target, connection, address, status).await),
        };
        let ids: Vec<&str> = models.iter().map(|model| model.id.as_str()).collect();
        let ids = ids.join(", ");
        let is_wanted = |model: &ModelInfo| model.id == self.requested || model.aliases.contains(&self.requested);
        match models.as_slice() {
            [model] if self.requested.is_empty() => Ok(model.clone()),
            _ if self.requested.is_empty() => {
                bail!("{} has several models; choose one with --model: {ids}", self.target)
            }
            models => models
                .iter()
                .find(|model| is_wanted(model))
                .cloned()
                .with_context(|| format!("{} has no model {}; it has {ids}", self.target, self.requested)),
        }
    }

    /// Returns a client for tasks.
    pub(crate) fn tasks(&self) -> TaskServiceClient<Channel> {
        TaskServiceClient::new(self.channel.clone())
    }

    /// Returns a call with the bearer token.
    pub(crate) fn call<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            token.add_to(request.metadata_mut());
        }
        request
    }

    /// The id that requests name.
    pub(crate) fn requested_model(&self) -> &str {
        &self.requested
    }

    /// Returns one line about the model.
    pub(crate) fn describe(&self) -> String {
        match self.model.context_length {
            0 => format!("{} at {}", self.model.id, self.target),
            context => format!("{} at {}, context of {context} tokens", self.model.id, self.target),
        }
    }
}

fn credentials(connection: &Connection, target: &Target) -> Result<Credentials> {
    let Connection { connect: _, tls_ca, tls_cert, tls_key, token_file } = connection.clone();
    let system = || SYSTEM_CA.iter().map(PathBuf::from).find(|path| path.is_file());
    let ca = if target.is_secured() { tls_ca.or_else(system) } else { None };
    if target.is_secured() && ca.is_none() {
        bail!("this system has no list of certificate authorities; give one with --tls-ca FILE");
    }
    Ok(Credentials { ca, identity: tls_cert.zip(tls_key).map(Into::into), token_file })
}

/// Returns the first address of the target that accepts a connection.
async fn reach(target: &Target) -> Result<SocketAddr> {
    let found = lookup_host((target.host(), target.port())).await;
    let addresses: Vec<_> = found.with_context(|| format!("there is no host {}", target.host()))?.collect();
    let mut failed = anyhow!("there is no host {}", target.host());
    for address in addresses {
        match timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(address),
            Ok(Err(error)) => failed = diagnosis::of_address(target, error),
            Err(_) => failed = anyhow!("{target} does not answer within {} s", PATIENCE.as_secs()),
        }
    }
    Err(failed)
}

fn option(name: &str, file: Option<&Path>) -> String {
    format!("{name} {}", file.unwrap_or(Path::new("")).display())
}
