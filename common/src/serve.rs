//! How a Tandem service is run: health, reflection, limits, typed transport errors, an access log, and a drain on shutdown.

mod access_log;
mod around;
mod deadline;
mod health;
mod typed_errors;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tower::util::MapResponseLayer;

use crate::pb;
use around::around;

pub use deadline::deadline;
pub use health::Health;

/// How to serve.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Largest request message, in bytes. Images travel inside requests.
    #[arg(long, env = "TANDEM_MAX_MESSAGE_BYTES", default_value_t = 32 << 20, value_name = "BYTES", help_heading = "Serving")]
    pub max_message_bytes: usize,

    /// How long requests in flight may take to finish after SIGTERM, in seconds.
    #[arg(long, env = "TANDEM_DRAIN_SECONDS", default_value_t = 30, value_name = "SECONDS", help_heading = "Serving")]
    pub drain_seconds: u64,
}

impl Default for ServeArgs {
    fn default() -> Self {
        Self { max_message_bytes: 32 << 20, drain_seconds: 30 }
    }
}

/// Why a service could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The descriptors do not describe what reflection was asked to show.
    #[error("reflection could not be built")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server ended with an error.
    #[error("the server failed")]
    Transport(#[from] tonic::transport::Error),
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signal(#[source] std::io::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}

/// Opens the listening socket. Port 0 takes any free port.
///
/// # Errors
/// The address is taken, or not this machine's.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}

/// Serves `routes` until `shutdown`, then drains: health turns NOT_SERVING, no call is accepted any more, and calls in flight get
/// [`ServeArgs::drain_seconds`] to finish.
///
/// # Errors
/// [`ServeError`], when the server could not be built or failed.
pub async fn serve(
    listener: TcpListener,
    args: &ServeArgs,
    health: Health,
    routes: Routes,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let (close, closed) = oneshot::channel();
    let server = Server::builder()
        .layer(around::<access_log::Call, _>())
        .layer(MapResponseLayer::new(typed_errors::typed))
        .layer(around::<deadline::Limit, _>())
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .add_routes(routes)
        .add_service(health.server())
        .add_service(reflection(&health)?.build_v1()?)
        .add_service(reflection(&health)?.build_v1alpha()?)
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), async {
            let _ = closed.await;
        });
    tokio::pin!(server);

    health.set(true).await;
    tokio::select! {
        ended = &mut server => return Ok(ended?),
        () = shutdown => {}
    }
    health.set(false).await;
    tracing::info!(seconds = args.drain_seconds, "draining");
    let _ = close.send(());
    match tokio::time::timeout(Duration::from_secs(args.drain_seconds), server).await {
        Ok(ended) => ended?,
        Err(_) => tracing::warn!("calls still in flight after the drain time were cut"),
    }
    tracing::info!("stopped");
    Ok(())
}

/// Reflection over the services that this process serves, and no others.
fn reflection(health: &Health) -> Result<tonic_reflection::server::Builder<'static>, ServeError> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection");
    Ok(health.names().iter().fold(builder, |builder, name| builder.with_service_name(*name)))
}

/// Waits for SIGTERM or SIGINT.
///
/// # Errors
/// Signal handlers cannot be installed. They are installed before this returns, not when the future is first polled.
pub fn shutdown_signal() -> Result<impl Future<Output = ()> + Send, ServeError> {
    let install = |kind| signal(kind).map_err(ServeError::Signal);
    let (mut terminate, mut interrupt): (Signal, Signal) =
        (install(SignalKind::terminate())?, install(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
