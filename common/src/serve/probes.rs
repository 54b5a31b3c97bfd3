//! Probes for orchestrators: `GET /livez` and `GET /readyz` over plain HTTP, without a token.

use std::net::SocketAddr;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio::net::TcpListener;

use super::error::ServeError;
use super::health::Health;
use super::pages::{Page, plain, serve_pages};

/// Serves the probes until the process ends, if an address is configured. They reveal two bits, so
/// that any address is safe.
pub(super) async fn serve_probes(address: Option<SocketAddr>, health: &Health) -> Result<(), ServeError> {
    let Some(address) = address else { return Ok(()) };
    let failed = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    tracing::info!(address = %listener.local_addr().map_err(failed)?, "probes listening");
    let health = health.clone();
    tokio::spawn(serve_pages(listener, None, move |request| answer(request, &health)));
    Ok(())
}

fn answer(request: &Request<Incoming>, health: &Health) -> Page {
    let is_good = match request.uri().path() {
        "/livez" => health.is_live(),
        "/readyz" => health.is_ready(),
        _ => return plain(StatusCode::NOT_FOUND, "not found\n"),
    };
    match *request.method() {
        Method::GET | Method::HEAD if is_good => plain(StatusCode::OK, "ok\n"),
        Method::GET | Method::HEAD => plain(StatusCode::SERVICE_UNAVAILABLE, "not ok\n"),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"),
    }
}
