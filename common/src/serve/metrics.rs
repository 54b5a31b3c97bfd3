//! The metrics page: `GET /metrics` over HTTP/1.1 or HTTP/2, in the Prometheus text format.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use prometheus::{Registry, TextEncoder};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::codegen::Bytes;

use super::connections::incoming;
use super::error::ServeError;
use super::listener::{SecureListener, listen};
use super::security::Security;
use super::tokens::Admission;
use crate::telemetry::Telemetry;

/// The limit of concurrent connections.
const MAX_CONNECTIONS: usize = 64;
/// The time for the headers of a request, and for a connection's first authorized request.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum age of a connection; scrapers reconnect.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);

/// Serves the metrics of `telemetry` over HTTP until the process ends.
///
/// Returns the address of the page, or None without `--metrics-listen`.
///
/// # Errors
/// Fails if the address is not available, or if it is not a loopback address and nothing protects
/// it.
pub async fn serve_metrics(telemetry: &Telemetry, security: &Security) -> Result<Option<SocketAddr>, ServeError> {
    let Some(page) = telemetry.metrics_page() else { return Ok(None) };
    let listener = listen(page.address, security).await?;
    let address = listener.local_addr().map_err(|source| ServeError::Listen { address: page.address, source })?;
    tokio::spawn(serve(SecureListener { listener, security: security.clone() }, page.registry.clone()));
    Ok(Some(address))
}

async fn serve(SecureListener { listener, security }: SecureListener, registry: Registry) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = incoming(listener, permits, security.tls.clone().map(|tls| tls.with_http1()));
    while let Some(Ok(connection)) = connections.next().await {
        let (security, registry) = (security.clone(), registry.clone());
        tokio::spawn(async move {
            let is_authorized = AtomicBool::new(false);
            let answer = service_fn(|request| {
                let answer = answer(&request, &security, &registry);
                is_authorized.fetch_or(answer.status() != StatusCode::UNAUTHORIZED, Ordering::Relaxed);
                async { Ok::<_, Infallible>(answer) }
            });
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
            server.http2().timer(TokioTimer::new()).max_concurrent_streams(8).keep_alive_interval(READ_TIMEOUT);
            let mut served = pin!(server.serve_connection(TokioIo::new(connection), answer));
            // The client may disconnect or send invalid HTTP; neither is an error of the service.
            if timeout(READ_TIMEOUT, &mut served).await.is_err() && is_authorized.load(Ordering::Relaxed) {
                let _ = timeout(MAX_CONNECTION_AGE, served).await;
            }
        });
    }
}

fn answer(request: &Request<Incoming>, security: &Security, registry: &Registry) -> Response<Full<Bytes>> {
    let admission = security.tokens.as_ref().map_or(Admission::Granted(None), |tokens| tokens.admit(request.headers()));
    let path = request.uri().path();
    if !admission.is_granted() {
        let mut refused = plain(StatusCode::UNAUTHORIZED, "missing or invalid header `authorization: Bearer TOKEN`\n");
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        return refused;
    }
    match (request.method(), path) {
        (&Method::GET, "/metrics") => match TextEncoder::new().encode_to_string(&registry.gather()) {
            Ok(text) => plain(StatusCode::OK, text),
            Err(error) => {
                tracing::error!(%error, "cannot encode metrics");
                plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot encode metrics\n")
            }
        },
        (_, "/metrics") => plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"),
        _ => plain(StatusCode::NOT_FOUND, "not found; metrics are at /metrics\n"),
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let format = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, format);
    response
}
