//! Small pages over HTTP/1.1 and HTTP/2, such as metrics and probes.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::codegen::Bytes;

use super::args::ServeArgs;
use super::connections::incoming;
use super::places::Places;
use super::tls::Tls;

/// The limit of concurrent connections.
const MAX_CONNECTIONS: usize = 64;
/// The time for the headers of a request, and for a connection's first authorized request.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum age of a connection; clients reconnect.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);

/// The response of a page.
pub(super) type Page = Response<Full<Bytes>>;

/// Answers requests until the process ends. A connection whose first request is UNAUTHORIZED is
/// closed.
pub(super) async fn serve_pages<A>(listener: TcpListener, tls: Option<Tls>, answer: A)
where
    A: Fn(&Request<Incoming>) -> Page + Clone + Send + Sync + 'static,
{
    let places = Places::of_pages(MAX_CONNECTIONS);
    let mut connections = incoming(listener, places, tls.map(Tls::with_http1), ServeArgs::DEFAULT.answer_patience());
    while let Some(Ok(connection)) = connections.next().await {
        let answer = answer.clone();
        tokio::spawn(async move {
            let is_authorized = AtomicBool::new(false);
            let answer = service_fn(|request| {
                let page = answer(&request);
                is_authorized.fetch_or(page.status() != StatusCode::UNAUTHORIZED, Ordering::Relaxed);
                async { Ok::<_, Infallible>(page) }
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

/// Returns the page of a request with another method than the page has.
pub(super) fn wrong_method(allowed: &'static str) -> Page {
    let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
    refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    refused
}

/// Returns a page of plain text.
pub(super) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Page {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let format = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, format);
    response
}
