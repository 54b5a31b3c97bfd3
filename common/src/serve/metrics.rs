//! Metrics, for those who scrape them: `GET /metrics` over HTTP/1.1 or HTTP/2, as text in Prometheus's format.

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

/// Connections at once.
const CONNECTIONS: usize = 64;
/// How long the headers of a request may take, and a connection to make one that is let in.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may last; who scrapes makes another.
const AGE: Duration = Duration::from_secs(600);

/// Serves the telemetry's metrics over HTTP until the process ends. Returns the address that it listens on, or None without
/// `--metrics-listen`.
///
/// # Errors
/// Fails if the address is not available, or is not a loopback address and nothing protects it.
pub async fn serve_metrics(telemetry: &Telemetry, security: &Security) -> Result<Option<SocketAddr>, ServeError> {
    let Some(page) = telemetry.metrics_page() else { return Ok(None) };
    let listener = listen(page.address, security).await?;
    let address = listener.local_addr().map_err(|source| ServeError::Listen { address: page.address, source })?;
    tokio::spawn(serve(SecureListener { listener, security: security.clone() }, page.registry.clone()));
    Ok(Some(address))
}

async fn serve(SecureListener { listener, security }: SecureListener, registry: Registry) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = incoming(listener, places, security.tls.clone().map(|tls| tls.for_web()));
    while let Some(Ok(connection)) = connections.next().await {
        let (security, registry) = (security.clone(), registry.clone());
        tokio::spawn(async move {
            let is_let_in = AtomicBool::new(false);
            let answer = service_fn(|request| {
                let answer = answer(&request, &security, &registry);
                is_let_in.fetch_or(answer.status() != StatusCode::UNAUTHORIZED, Ordering::Relaxed);
                async { Ok::<_, Infallible>(answer) }
            });
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            server.http2().timer(TokioTimer::new()).max_concurrent_streams(8).keep_alive_interval(PATIENCE);
            let mut served = pin!(server.serve_connection(TokioIo::new(connection), answer));
            // Who scrapes may go, or talk nonsense.
            if timeout(PATIENCE, &mut served).await.is_err() && is_let_in.load(Ordering::Relaxed) {
                let _ = timeout(AGE, served).await;
            }
        });
    }
}

fn answer(request: &Request<Incoming>, security: &Security, registry: &Registry) -> Response<Full<Bytes>> {
    let admission = security.tokens.as_ref().map_or(Admission::Granted, |tokens| tokens.admit(request.headers()));
    let path = request.uri().path();
    if !admission.is_granted() {
        let mut refused = plain(StatusCode::UNAUTHORIZED, "this needs a header `authorization: Bearer TOKEN`\n");
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        return refused;
    }
    match (request.method(), path) {
        (&Method::GET, "/metrics") => match TextEncoder::new().encode_to_string(&registry.gather()) {
            Ok(text) => plain(StatusCode::OK, text),
            Err(error) => {
                tracing::error!(%error, "metrics cannot be written");
                plain(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written\n")
            }
        },
        (_, "/metrics") => plain(StatusCode::METHOD_NOT_ALLOWED, "GET it\n"),
        _ => plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let format = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, format);
    response
}
