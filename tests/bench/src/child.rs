//! A measured service, as a child process.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tandem_common::process::Service;
use tonic::transport::{Channel, Endpoint};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Starts a service and waits until it is ready, without blocking the runtime.
pub(crate) async fn start(name: &str, mut command: Command) -> Result<Service> {
    let mut service = Service::spawn(name, &mut command)?;
    while !service.is_ready(Duration::ZERO)? {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(service)
}

/// Opens a new connection to a service.
pub(crate) async fn connect(service: &Service) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", service.address()))?.tcp_nodelay(true);
    Ok(endpoint.connect().await?)
}
