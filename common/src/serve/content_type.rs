//! Rejects requests that are not gRPC, before they count as calls.

use std::sync::Arc;

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use tonic::body::Body;

use crate::call_layer::CallWork;
use crate::log_limit::{LogLimit, PEER_INTERVAL};
use crate::telemetry::Identity;

/// The formats of gRPC and gRPC-Web with protobuf messages.
const ACCEPTED: [&str; 6] = [
    "application/grpc",
    "application/grpc+proto",
    "application/grpc-web",
    "application/grpc-web+proto",
    "application/grpc-web-text",
    "application/grpc-web-text+proto",
];
/// The start of the formats of gRPC-Web.
const GRPC_WEB: &str = "application/grpc-web";
/// The text for people who open the port in a browser or with curl.
const HINT: &str = "this port serves gRPC and gRPC-Web with protobuf messages\n";
/// The text for callers whose library or proxy does not use HTTP/2.
const NEEDS_HTTP2: &str = "gRPC needs HTTP/2; over HTTP/1.1 use gRPC-Web\n";

/// The text for a request that two servers may read differently. The library takes it.
const UNCLEAR: &str = "HTTP/1.1 needs one `host`, and at most one `transfer-encoding`, which is `chunked`\n";

static LOG_LIMIT: LogLimit = LogLimit::new(PEER_INTERVAL);

/// The format of a request.
#[derive(Debug)]
pub(super) enum ContentType {
    Grpc,
    /// A request that no gRPC client makes.
    Foreign(Refusal),
}

/// The HTTP status and the text of a response, and the request's id.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    text: &'static str,
    identity: Identity,
}

impl ContentType {
    /// Also writes the header in the form that the gRPC-Web layer compares: in lower case, without
    /// parameters.
    pub(super) fn of(request: &mut Request<Body>) -> Self {
        let value = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let format = value.split(';').next().unwrap_or_default().trim();
        let accepted = ACCEPTED.into_iter().find(|accepted| accepted.eq_ignore_ascii_case(format));
        let refused = |status, text| {
            let identity = Identity::new(request.headers(), Arc::default());
            Self::Foreign(Refusal { status, text, identity })
        };
        if request.version() < Version::HTTP_2 && !is_framed(request) {
            return refused(StatusCode::BAD_REQUEST, UNCLEAR);
        }
        if request.method() != Method::POST {
            return refused(StatusCode::METHOD_NOT_ALLOWED, HINT);
        }
        let Some(accepted) = accepted else { return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, HINT) };
        if request.version() < Version::HTTP_2 && !accepted.starts_with(GRPC_WEB) {
            return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, NEEDS_HTTP2);
        }
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(accepted));
        Self::Grpc
    }
}

/// Returns true if the headers of HTTP/1.1 state a host and the end of the body once: RFC 9112, sections 3.2 and 6.1.
fn is_framed(request: &Request<Body>) -> bool {
    let count = |name| request.headers().get_all(name).iter().count();
    let hosts = if request.version() == Version::HTTP_10 { count(HOST).max(1) } else { count(HOST) };
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    let encodings = request.headers().get_all(TRANSFER_ENCODING);
    hosts == 1 && count(TRANSFER_ENCODING) <= 1 && encodings.iter().all(is_chunked)
}

impl CallWork for ContentType {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        match self {
            Self::Grpc => call().await,
            Self::Foreign(Refusal { status, text, identity }) => {
                if let Some(unlogged) = LOG_LIMIT.permit() {
                    let request_id = &*identity.request_id;
                    tracing::warn!(status = status.as_u16(), request_id, unlogged, "request is not gRPC");
                }
                let mut response = refused(status, text);
                identity.add_to(response.headers_mut());
                Ok(response)
            }
        }
    }
}

/// Returns a response of plain text.
pub(super) fn refused(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::new(text.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match status {
        StatusCode::METHOD_NOT_ALLOWED => drop(response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"))),
        // The next request may begin elsewhere.
        StatusCode::BAD_REQUEST => drop(response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"))),
        _ => {}
    }
    response
}
