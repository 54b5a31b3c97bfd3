//! The limit of a call's headers.

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;

use crate::call_layer::CallWork;
use crate::status::{Failure, Reason};

/// The maximum size of a call's headers in bytes.
const MAX_BYTES: usize = 16 << 10;
/// The size beyond which the library refuses a call itself, with the HTTP status 431 and without a gRPC status.
/// Callers get a typed error of headers between the two sizes.
pub(super) const MAX_READ_BYTES: u32 = 64 << 10;
/// The bytes that a header counts in addition to its name and its value: RFC 9113, section 6.5.2.
const OVERHEAD_BYTES: usize = 32;

/// The size of a call's headers.
#[derive(Debug)]
pub(super) struct HeaderBytes(usize);

impl HeaderBytes {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + OVERHEAD_BYTES);
        Self(headers.sum::<usize>() + request.uri().path().len())
    }
}

impl CallWork for HeaderBytes {
    async fn run<E, F>(self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let Self(found) = self;
        if found <= MAX_BYTES {
            return call().await;
        }
        let message = format!("headers have {found} bytes, limit {MAX_BYTES}");
        Ok(Status::from(Failure::new(Reason::MessageTooLarge, message)).into_http())
    }
}
