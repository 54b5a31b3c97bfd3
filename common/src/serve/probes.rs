//! Probes for orchestrators: `GET /livez` and `GET /readyz` over plain HTTP/1.1, without a token.
//!
//! A connection has one request and a short life, because anyone may connect. Idle connections must
//! not prevent probes: the orchestrator would restart the service.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

use super::args::ServeArgs;
use super::connections::{Connection, incoming};
use super::error::ServeError;
use super::health::Health;
use super::pages::{Page, plain, wrong_method};
use super::places::Places;

/// The limit of concurrent connections. One more closes the oldest.
const MAX_CONNECTIONS: usize = 256;
/// The time for a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves the probes until the process ends, if an address is configured. They reveal two bits, so
/// that any address is safe.
pub(super) async fn serve_probes(address: Option<SocketAddr>, health: &Health) -> Result<(), ServeError> {
    let Some(address) = address else { return Ok(()) };
    let failed = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    tracing::info!(address = %listener.local_addr().map_err(failed)?, "probes listening");
    let health = health.clone();
    tokio::spawn(accept(listener, health));
    Ok(())
}

async fn accept(listener: TcpListener, health: Health) {
    let mut accepted = incoming(listener, Places::of_pages(usize::MAX), None, ServeArgs::DEFAULT.answer_patience());
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    while let Some(Ok(connection)) = accepted.next().await {
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= MAX_CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        connections.push_back(tokio::spawn(serve(connection, health.clone())).abort_handle());
    }
}

async fn serve(connection: Connection, health: Health) {
    let answer = service_fn(|request| {
        let page = answer(&request, &health);
        async { Ok::<_, Infallible>(page) }
    });
    let served = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(connection), answer);
    // The client may disconnect or send invalid HTTP; neither is an error of the service.
    let _ = timeout(CONNECTION_TIMEOUT, served).await;
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
        _ => wrong_method("GET, HEAD"),
    }
}
