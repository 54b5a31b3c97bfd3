//! Rejects requests that are not gRPC, before they count as calls.

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tonic::body::Body;

use crate::call_layer::CallWork;

/// The formats of gRPC and gRPC-Web with protobuf messages.
const ACCEPTED: [&str; 6] = [
    "application/grpc",
    "application/grpc+proto",
    "application/grpc-web",
    "application/grpc-web+proto",
    "application/grpc-web-text",
    "application/grpc-web-text+proto",
];
/// The text for people who open the port in a browser or with curl.
const HINT: &str = "this port serves gRPC and gRPC-Web with protobuf messages\n";

/// The format of a request.
#[derive(Debug)]
pub(super) enum ContentType {
    Grpc,
    /// A request that no gRPC client makes, with the HTTP status of its response.
    Foreign(StatusCode),
}

impl ContentType {
    pub(super) fn of(request: &Request<Body>) -> Self {
        let value = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let format = value.split(';').next().unwrap_or_default().trim();
        if request.method() != Method::POST {
            Self::Foreign(StatusCode::METHOD_NOT_ALLOWED)
        } else if ACCEPTED.iter().any(|accepted| accepted.eq_ignore_ascii_case(format)) {
            Self::Grpc
        } else {
            Self::Foreign(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        }
    }
}

impl CallWork for ContentType {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        match self {
            Self::Grpc => call().await,
            Self::Foreign(status) => Ok(refused(status)),
        }
    }
}

fn refused(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::new(HINT.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}
