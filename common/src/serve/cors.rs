//! Which web pages a browser lets call the services (CORS).

use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::origin::ANY;

/// The time for which a browser remembers the answer.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// The request headers of gRPC-Web clients, of trace context and of request ids.
const REQUEST_HEADERS: [HeaderName; 9] = [
    AUTHORIZATION,
    CONTENT_TYPE,
    HeaderName::from_static("grpc-timeout"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-grpc-web"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-user-agent"),
    HeaderName::from_static("connect-protocol-version"),
];
/// The response headers that pages may read.
const RESPONSE_HEADERS: [HeaderName; 5] = [
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status-details-bin"),
    HeaderName::from_static("grpc-retry-pushback-ms"),
    HeaderName::from_static("x-request-id"),
];

/// Returns the layer that answers a browser's preflight requests. None without origins: no page may
/// call the services.
pub(super) fn layer(origins: &[HeaderValue]) -> Option<CorsLayer> {
    let origins = match origins {
        [] => return None,
        origins if origins.iter().any(|origin| origin == ANY) => AllowOrigin::any(),
        origins => AllowOrigin::list(origins.iter().cloned()),
    };
    let layer = CorsLayer::new().allow_origin(origins).allow_methods([Method::POST]);
    Some(layer.allow_headers(REQUEST_HEADERS).expose_headers(RESPONSE_HEADERS).max_age(MAX_AGE))
}
