//! The metrics page: `GET /metrics` over HTTP/1.1 or HTTP/2, in the Prometheus text format.

use std::net::SocketAddr;

use http::{HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Incoming;
use prometheus::{Registry, TextEncoder};

use super::error::ServeError;
use super::listener::listen;
use super::pages::{Page, plain, serve_pages, wrong_method};
use super::security::Security;
use super::tokens::Admission;
use crate::telemetry::Telemetry;

/// Version 0.0.4 of the Prometheus text format.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

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
    let (security, registry) = (security.clone(), page.registry.clone());
    tokio::spawn(serve_pages(listener, security.tls.clone(), move |request| answer(request, &security, &registry)));
    Ok(Some(address))
}

fn answer(request: &Request<Incoming>, security: &Security, registry: &Registry) -> Page {
    let admission = security.tokens.as_ref().map_or(Admission::Granted(None), |tokens| tokens.admit(request.headers()));
    let path = request.uri().path();
    if !admission.is_granted() {
        let mut refused = plain(StatusCode::UNAUTHORIZED, "missing or invalid header `authorization: Bearer TOKEN`\n");
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return refused;
    }
    match (request.method(), path) {
        (&Method::GET, "/metrics") => match TextEncoder::new().encode_to_string(&registry.gather()) {
            Ok(text) => {
                let mut page = plain(StatusCode::OK, text);
                page.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(FORMAT));
                page
            }
            Err(error) => {
                tracing::error!(%error, "cannot encode metrics");
                plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot encode metrics\n")
            }
        },
        (_, "/metrics") => wrong_method("GET"),
        _ => plain(StatusCode::NOT_FOUND, "not found; metrics are at /metrics\n"),
    }
}
