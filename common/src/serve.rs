//! How a Tandem service is run: who may call, limits, health, reflection, typed transport errors, metrics to scrape, and a
//! drain on shutdown.

mod args;
mod arrival;
mod capacity;
mod connections;
mod deadline;
mod error;
mod health;
mod later;
mod listener;
mod metrics;
mod security;
mod tls;
mod tokens;
mod typed_errors;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::transport::Server;
use tower::util::{MapRequestLayer, MapResponseLayer};

use crate::around::around;
use crate::pb;
use crate::telemetry::Call;
use capacity::Capacity;
use later::later;
use tokens::Admission;

pub use args::{SecurityArgs, ServeArgs};
pub use deadline::deadline;
pub use error::ServeError;
pub use health::Health;
pub use later::DeferredRoutes;
pub use listener::{SecureListener, listen};
pub use metrics::serve_metrics;
pub use security::Security;

/// Headers of a call, in bytes.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// A socket, and the gRPC services that are served there.
#[derive(Debug)]
pub struct Endpoint {
    /// Where callers connect.
    pub listener: TcpListener,
    /// Who may.
    pub security: Security,
    /// The services' full names.
    pub names: Vec<&'static str>,
    /// The services, once they are made.
    pub routes: DeferredRoutes,
}

/// Serves all endpoints until `shutdown`, then drains: health turns NOT_SERVING, no call is accepted any more, and calls in flight get
/// [`ServeArgs::drain_seconds`] to finish. Health is SERVING once all services are made; calls to one that is not are refused. Limits are
/// each endpoint's own.
///
/// # Errors
/// [`ServeError`], when a server could not be built or failed.
pub async fn serve(
    endpoints: Vec<Endpoint>,
    args: &ServeArgs,
    health: Health,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    allow_many_files();
    health.set(false).await;
    let (close, closed) = watch::channel(());
    let mut servers = JoinSet::new();
    let routes: Vec<_> = endpoints.iter().map(|endpoint| Arc::clone(&endpoint.routes)).collect();
    for endpoint in endpoints {
        servers.spawn(server(endpoint, args, &health, closed.clone())?);
    }
    drop(closed);

    let ready = async {
        for routes in routes {
            routes.wait().await;
        }
        health.set(true).await;
        std::future::pending().await
    };
    tokio::select! {
        () = ready => {}
        Some(ended) = servers.join_next() => return ended?,
        () = shutdown => {}
    }
    health.set(false).await;
    tracing::info!(seconds = args.drain_seconds, "draining");
    let _ = close.send(());
    health.end().await;
    let drained = async {
        while let Some(ended) = servers.join_next().await {
            ended??;
        }
        Ok::<(), ServeError>(())
    };
    match tokio::time::timeout(Duration::from_secs(args.drain_seconds), drained).await {
        Ok(ended) => ended?,
        Err(_) => tracing::warn!("calls still in flight after the drain time were cut"),
    }
    tracing::info!("stopped");
    Ok(())
}

/// Serves one endpoint until it is told to close.
fn server(
    endpoint: Endpoint,
    args: &ServeArgs,
    health: &Health,
    mut closed: watch::Receiver<()>,
) -> Result<impl Future<Output = Result<(), ServeError>> + use<>, ServeError> {
    let Endpoint { listener, security: Security { tls, tokens, .. }, names, routes } = endpoint;
    let calls = Capacity::new(args.max_calls);
    let look = move |mut request: Request<Body>| {
        let admission = tokens.as_ref().map_or(Admission::Granted, |tokens| tokens.check(&request));
        request.extensions_mut().insert(admission);
        request
    };
    let builder = match args.max_connection_age() {
        Some(age) => Server::builder().max_connection_age(age),
        None => Server::builder(),
    };
    let router = builder
        .layer(MapRequestLayer::new(look))
        .layer(around(|request: &mut Request<Body>| Call::answered(request, Admission::of(request).is_granted())))
        .layer(MapResponseLayer::new(typed_errors::typed))
        .layer(around(|request: &mut Request<Body>| Admission::of(request)))
        .layer(around(move |request: &mut Request<Body>| calls.take(request)))
        .layer(around(|request: &mut Request<Body>| deadline::Limit::begin(request)))
        .layer(MapRequestLayer::new(arrival::in_time))
        .layer(later(routes))
        .max_concurrent_streams(args.max_connection_calls)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .add_service(health.server())
        .add_service(reflection(&names)?.build_v1()?)
        .add_service(reflection(&names)?.build_v1alpha()?);
    let connections = Arc::new(Semaphore::new(args.max_connections.min(Semaphore::MAX_PERMITS)));
    let incoming = connections::incoming(listener, connections, tls);
    let close = async move {
        let _ = closed.changed().await;
    };
    Ok(async move { Ok(router.serve_with_incoming_shutdown(incoming, close).await?) })
}

/// Connections are files to the system, which allows fewer than it could unless it is asked.
fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// Reflection. It lists the services of an endpoint; who asks for another by name gets its description.
fn reflection(names: &[&'static str]) -> Result<tonic_reflection::server::Builder<'static>, ServeError> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection");
    Ok(names.iter().fold(builder, |builder, name| builder.with_service_name(*name)))
}

/// Waits for SIGTERM or SIGINT. A SIGINT after that ends the process at once, whatever is in flight.
///
/// # Errors
/// Signal handlers cannot be installed. They are installed before this returns, not when the future is first polled.
pub fn shutdown_signal() -> Result<impl Future<Output = ()> + Send, ServeError> {
    let install = |kind| signal(kind).map_err(ServeError::Signal);
    let (mut terminate, mut interrupt) = (install(SignalKind::terminate())?, install(SignalKind::interrupt())?);
    let (tell, told) = oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // Whoever waited may have found another reason to end.
        let _ = tell.send(());
        interrupt.recv().await;
        tracing::warn!("interrupted again: ends at once");
        // Not as `exit` does: what libtorch needs must not go while it computes.
        let _ = kill_process(getpid(), Signal::KILL);
        // The first process of a container cannot kill itself so.
        std::process::abort();
    });
    Ok(async {
        let _ = told.await;
    })
}
