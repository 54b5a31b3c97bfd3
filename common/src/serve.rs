//! A gRPC server: TLS and tokens, limits, health, reflection, typed transport errors, the metrics
//! page, and drain on shutdown.

mod answer_bytes;
mod args;
mod body_timeout;
mod caller;
mod capacity;
mod connections;
mod content_type;
mod cors;
mod deadline;
mod element_count;
mod error;
mod handshakes;
mod header_limit;
mod health;
mod health_capacity;
mod listener;
mod message_bytes;
mod message_limit;
mod message_types;
mod metrics;
mod not_ready;
mod origin;
mod pages;
mod places;
mod probes;
mod reflection;
mod security;
mod shutdown;
mod tls;
mod tokens;
mod typed_errors;
mod unread_answers;
mod unread_body;
mod unsent;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::transport::Server;
use tonic_web::GrpcWebLayer;
use tower::util::{MapRequestLayer, MapResponseLayer, option_layer};

use crate::call_layer::CallLayer;
use crate::telemetry::Call;
use answer_bytes::AnswerBytes;
use capacity::Capacity;
use content_type::ContentType;
use deadline::CallTimeout;
use header_limit::HeaderBytes;
use message_bytes::MessageBytes;
use not_ready::NotReadyLayer;
use origin::Origins;
use places::Places;
use reflection::ReflectionErrors;
use tls::Tls;
use tokens::Admission;
use unread_answers::AnswerOf;
use unsent::Unsent;

pub use args::{SecurityArgs, ServeArgs};
pub use caller::Caller;
pub use deadline::{deadline, last_deadline};
pub use error::ServeError;
pub use health::Health;
pub use listener::{SecureListener, listen};
pub use metrics::serve_metrics;
pub use not_ready::DeferredRoutes;
pub use security::Security;
pub use shutdown::Shutdown;

/// The concurrent calls of a connection. Further ones wait in the client.
const MAX_CONNECTION_CALLS: u32 = 1024;
/// The time between two HTTP/2 pings on a connection.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The time for the client's response to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// A socket and its gRPC services.
#[derive(Debug)]
pub struct Endpoint {
    /// The socket.
    pub listener: TcpListener,
    /// TLS and tokens of its connections.
    pub security: Security,
    /// The services' full names.
    pub names: Vec<&'static str>,
    /// The services, set once they are ready.
    pub routes: DeferredRoutes,
    /// True if the endpoint accepts calls until the other endpoints have drained.
    pub outlasts_drain: bool,
}

/// Serves all endpoints until `shutdown`, then drains.
///
/// Health is SERVING once the routes of all endpoints are set. Calls to an endpoint without routes
/// are rejected. Each endpoint has separate limits. On shutdown, health reports NOT_SERVING and new
/// calls are rejected. Calls in progress have [`ServeArgs::drain_seconds`] to finish. Endpoints that
/// outlast the drain are closed last.
///
/// # Errors
/// Fails with [`ServeError`] if a server could not be built or failed.
pub async fn serve(
    endpoints: Vec<Endpoint>,
    args: &ServeArgs,
    health: Health,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    raise_file_limit();
    health.set(false).await;
    probes::serve_probes(args.health_listen, &health).await?;
    let (close, closed) = watch::channel(());
    let (close_last, closed_last) = watch::channel(());
    let (mut servers, mut last_servers) = (JoinSet::new(), JoinSet::new());
    let routes: Vec<_> = endpoints.iter().map(|endpoint| Arc::clone(&endpoint.routes)).collect();
    for endpoint in endpoints {
        if endpoint.outlasts_drain {
            last_servers.spawn(server(endpoint, args, &health, closed_last.clone())?);
        } else {
            servers.spawn(server(endpoint, args, &health, closed.clone())?);
        }
    }
    drop((closed, closed_last));

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
        Some(ended) = last_servers.join_next() => return ended?,
        () = shutdown => {}
    }
    health.close().await;
    tracing::info!(seconds = args.drain_seconds, "draining");
    let _ = close.send(());
    health.end().await;
    let drained = async {
        join(servers).await?;
        let _ = close_last.send(());
        join(last_servers).await
    };
    match tokio::time::timeout(Duration::from_secs(args.drain_seconds), drained).await {
        Ok(ended) => ended?,
        Err(_) => tracing::warn!(seconds = args.drain_seconds, "drain timed out; calls in progress were aborted"),
    }
    tracing::info!("stopped");
    Ok(())
}

async fn join(mut servers: JoinSet<Result<(), ServeError>>) -> Result<(), ServeError> {
    while let Some(ended) = servers.join_next().await {
        ended??;
    }
    Ok(())
}

/// Returns the future of one endpoint's server, which ends after a message on `closed`.
///
/// The layers, from the outermost:
///
/// | layer | work | reason for its place |
/// |---|---|---|
/// | `unread_body` | reads the rest of an HTTP/1.1 body | each layer below may answer before the body has arrived |
/// | `cors` | answers preflights of browsers | preflights have no token and are no calls |
/// | `Origins` | refuses other web pages | before a page's request has any effect or is counted |
/// | `ContentType` | refuses requests that are no gRPC | before the request counts as a call |
/// | `AnswerOf` | ties the answer to its connection | it sees the answer as it is sent, after gRPC-Web has encoded it |
/// | `GrpcWebLayer` | translates gRPC-Web | all layers below read and write gRPC only |
/// | `admit` | checks the token, identifies the caller | the next layers need the result |
/// | `Call` | metrics, trace, log line | it counts refusals of all layers below, under the caller's name |
/// | `typed` | gives details to tonic's errors | outside all layers whose errors it completes |
/// | `Admission` | refuses without a valid token | first of the refusals: an unknown caller takes no place |
/// | `HeaderBytes` | refuses long headers | before a permit is taken |
/// | `Capacity` | takes a permit for the call | a call without a permit starts no timer and reads no body |
/// | `AnswerBytes` | counts the bytes of messages | it holds the permit until the answer is sent |
/// | `CallTimeout` | ends the call at its deadline | the permits are released with the call |
/// | `body_timeout` | bounds the time of the request message | outside the size check, whose waits it bounds |
/// | `message_limit` | bounds the size of the request message | nothing above the limit is decoded |
/// | `ReflectionErrors` | gives details to reflection's errors | it observes the body that reflection reads |
/// | `NotReadyLayer` | refuses until the routes are there | innermost: it is the router of the services |
fn server(
    endpoint: Endpoint,
    args: &ServeArgs,
    health: &Health,
    mut closed: watch::Receiver<()>,
) -> Result<impl Future<Output = Result<(), ServeError>> + use<>, ServeError> {
    let Endpoint { listener, security: Security { tls, tokens, .. }, names, routes, outlasts_drain: _ } = endpoint;
    let (capacity, max_message_bytes) = (Capacity::new(args.max_calls), args.max_message_bytes);
    let message_bytes = MessageBytes::new(args.max_total_message_bytes());
    let origins = Origins::new(&args.allowed_origins);
    let admit = move |mut request: Request<Body>| {
        let admission = tokens.as_ref().map_or(Admission::Granted(None), |tokens| tokens.check(&request));
        let caller = Caller::identify(&request, &admission);
        request.extensions_mut().insert(admission);
        request.extensions_mut().insert(caller);
        request
    };
    let builder = match args.max_connection_age() {
        Some(age) => Server::builder().max_connection_age(age),
        None => Server::builder(),
    };
    let router = builder
        .accept_http1(true)
        .layer(MapRequestLayer::new(unread_body::read_to_end))
        .layer(option_layer(cors::layer(&args.allowed_origins)))
        .layer(CallLayer::new(move |request: &mut Request<Body>| origins.check(request)))
        .layer(CallLayer::new(|request: &mut Request<Body>| ContentType::of(request)))
        .layer(CallLayer::new(|request: &mut Request<Body>| AnswerOf::new(request)))
        .layer(GrpcWebLayer::new())
        .layer(MapRequestLayer::new(admit))
        .layer(CallLayer::new(|request: &mut Request<Body>| {
            let admission = Admission::of(request);
            let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
            Call::incoming(request, admission.is_granted(), caller.id)
        }))
        .layer(MapResponseLayer::new(typed_errors::typed))
        .layer(CallLayer::new(|request: &mut Request<Body>| Admission::of(request)))
        .layer(CallLayer::new(|request: &mut Request<Body>| HeaderBytes::of(request)))
        .layer(CallLayer::new(move |request: &mut Request<Body>| capacity.acquire(request)))
        .layer(CallLayer::new(move |request: &mut Request<Body>| {
            AnswerBytes::new(message_bytes.start(request), Unsent::of(request))
        }))
        .layer(CallLayer::new(|request: &mut Request<Body>| CallTimeout::start(request)))
        .layer(MapRequestLayer::new(body_timeout::with_body_timeout))
        .layer(MapRequestLayer::new(move |request| message_limit::with_message_limit(max_message_bytes, request)))
        .layer(CallLayer::new(|request: &mut Request<Body>| ReflectionErrors::of(request)))
        .layer(NotReadyLayer::new(routes))
        .max_concurrent_streams(MAX_CONNECTION_CALLS)
        .http2_max_header_list_size(header_limit::MAX_READ_BYTES)
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .add_service(health.server())
        .add_service(reflection::service(&names)?.build_v1()?.max_decoding_message_size(reflection::MAX_MESSAGE_BYTES))
        .add_service(
            reflection::service(&names)?.build_v1alpha()?.max_decoding_message_size(reflection::MAX_MESSAGE_BYTES),
        );
    let places = Places::new(args.max_connections());
    connections::observe(names.first().copied().unwrap_or_default(), &places.all);
    // Browsers and proxies send gRPC-Web over HTTP/1.1 too.
    let incoming = connections::incoming(listener, places, tls.map(Tls::with_http1), args.answer_patience());
    let close = async move {
        let _ = closed.changed().await;
    };
    Ok(async move { Ok(router.serve_with_incoming_shutdown(incoming, close).await?) })
}

/// Raises the limit of open files to the maximum that the operating system allows. This limit
/// bounds the number of connections.
fn raise_file_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "limit of open files not raised");
    }
}
