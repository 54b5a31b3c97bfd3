//! Reads the rest of an HTTP/1.1 request that is answered before its body has arrived.
//!
//! HTTP/1.1 cannot refuse a body. A server that stops reading must close the connection. Many
//! clients then lose the answer: they are still writing, or send their next request there.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::runtime::Handle;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

/// The maximum size of the rest. A longer rest closes the connection.
const MAX_BYTES: usize = 64 << 20;
/// The maximum time for the rest.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The message for a body that ends with an invalid chunk.
pub(super) const INVALID_CHUNK: &str = "invalid chunk of an HTTP/1.1 body";

/// Makes an HTTP/1.1 body be read to its end, even if the call drops it before.
pub(super) fn read_to_end(request: Request<Body>) -> Request<Body> {
    match request.version() {
        Version::HTTP_2 => request,
        _ => request.map(|body| Body::new(UnreadBody(Some(body)))),
    }
}

/// A body, until its end or its first error.
struct UnreadBody(Option<Body>);

impl http_body::Body for UnreadBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context).map_err(typed);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// Replaces the error of an invalid chunk. hyper reports an interrupted body with the same text, and
/// the cause only differs in its kind.
fn typed(status: Status) -> Status {
    let first = std::error::Error::source(&status);
    let kind = std::iter::successors(first, |cause| cause.source())
        .find_map(|cause| cause.downcast_ref::<io::Error>().map(io::Error::kind));
    match kind {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => Status::internal(INVALID_CHUNK),
        _ => status,
    }
}

impl Drop for UnreadBody {
    fn drop(&mut self) {
        let Some(body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(tokio::time::timeout(READ_TIMEOUT, discard(body)));
        }
    }
}

async fn discard(mut body: Body) {
    let mut discarded = 0;
    while let Some(Ok(frame)) = body.frame().await {
        discarded += frame.data_ref().map_or(0, Bytes::len);
        if discarded > MAX_BYTES {
            return;
        }
    }
}
