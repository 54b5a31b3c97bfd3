//! What is told of every call, by who answers it and by who makes it: a span, a measurement and, of those that are answered, a log line.
//! It ends with the trailers of the answer, or when the caller goes away.
//!
//! Names and attributes are those of OpenTelemetry's conventions for gRPC. Traces go from service to service as W3C Trace Context says.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Instant;

use http::{HeaderMap, Request, Response};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Histogram;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower::Layer as _;

use super::{Span, meter};
use crate::around::{Around, AroundService, Keep, around, keep_with};
use crate::pb;
use crate::status::{Reason, code_name};

/// What vendors of tracing tell each other. More of it than the specification asks to be passed on is not.
const STATE: &str = "tracestate";
const MAX_STATE: usize = 512;

/// Stands for all methods that there are not.
const OTHER: &str = "_OTHER";

/// Upper bounds, in seconds: those of the conventions, and some below them and above.
const SECONDS: [f64; 20] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    30.0, 60.0,
];

/// The methods of the project, such as `tandem.render.v1.RenderService/Render`.
static METHODS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let files = FileDescriptorSet::decode(pb::DESCRIPTORS).unwrap_or_default().file;
    let methods = |file: prost_types::FileDescriptorProto| {
        let package = file.package().to_owned();
        file.service.into_iter().flat_map(move |service| {
            let service_name = format!("{package}.{}", service.name());
            service.method.into_iter().map(move |method| format!("{service_name}/{}", method.name()))
        })
    };
    files.into_iter().flat_map(methods).collect()
});

static DURATIONS: LazyLock<[Histogram<f64>; 2]> = LazyLock::new(|| {
    [
        duration("rpc.server.call.duration", "How long calls took to answer, to the end of the answer."),
        duration("rpc.client.call.duration", "How long calls to other services took, to the end of the answer."),
    ]
});

fn duration(name: &'static str, description: &'static str) -> Histogram<f64> {
    meter().f64_histogram(name).with_unit("s").with_description(description).with_boundaries(SECONDS.to_vec()).build()
}

/// A channel whose calls are told of, and carry the trace that they belong to.
pub type Traced = AroundService<fn(&mut Request<Body>) -> Call, Channel>;

/// Makes it of a channel.
#[must_use]
pub fn traced(channel: Channel) -> Traced {
    around(Call::made as fn(&mut Request<Body>) -> Call).layer(channel)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Ours to answer.
    Server,
    /// Ours to make.
    Client,
    /// One of gRPC's own services, which look at us all the time: only logged.
    Unremarkable,
}

/// A call under way.
#[derive(Debug)]
pub struct Call {
    side: Side,
    method: &'static str,
    span: Span,
    start: Instant,
    /// The last status seen; without one the caller went away.
    code: Option<Code>,
    reason: Option<Reason>,
}

impl Call {
    /// One that is ours to answer, from a caller that is let in, or not. It belongs to the trace that its headers name.
    pub(crate) fn answered(request: &mut Request<Body>, is_let_in: bool) -> Self {
        if request.uri().path().starts_with("/grpc.") {
            return Self::new(Side::Unremarkable, OTHER, Span::none());
        }
        let state = request.headers().get_all(STATE).iter().map(|value| value.len()).sum::<usize>();
        if state > MAX_STATE {
            request.headers_mut().remove(STATE);
        }
        let method = method(request);
        let span = Span::answer(method, request.headers(), is_let_in, || attributes(method));
        Self::new(Side::Server, method, span)
    }

    /// One to another service, which gets to know the trace.
    fn made(request: &mut Request<Body>) -> Self {
        let method = method(request);
        let span = Span::call(method, || attributes(method));
        span.add_to(request.headers_mut());
        Self::new(Side::Client, method, span)
    }

    fn new(side: Side, method: &'static str, span: Span) -> Self {
        Self { side, method, span, start: Instant::now(), code: None, reason: None }
    }

    /// Whether it is to blame on who answered it; to who made it, any failure is one.
    fn is_error(&self, code: Code) -> bool {
        let is_servers = matches!(
            code,
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        );
        is_servers || (self.side == Side::Client && code != Code::Ok)
    }

    fn measure(&self, code: &'static str, error: Option<&'static str>) {
        let [server, client] = &*DURATIONS;
        let histogram = if self.side == Side::Server { server } else { client };
        let attributes = [
            KeyValue::new("rpc.system.name", "grpc"),
            KeyValue::new("rpc.method", self.method),
            KeyValue::new("rpc.response.status_code", code),
            KeyValue::new("error.type", error.unwrap_or_default()),
        ];
        let count = if error.is_some() { 4 } else { 3 };
        histogram.record(self.start.elapsed().as_secs_f64(), &attributes[..count]);
    }

    fn see(&mut self, status: &Status) {
        self.code = Some(status.code());
        if status.code() != Code::Ok {
            let details = status.get_error_details();
            self.reason = details.error_info().and_then(|info| Reason::from_name(&info.reason));
        }
    }
}

/// The method that a request is for, if it is one of the project's.
fn method(request: &Request<Body>) -> &'static str {
    METHODS.get(request.uri().path().trim_start_matches('/')).map_or(OTHER, String::as_str)
}

fn attributes(method: &'static str) -> [KeyValue; 2] {
    [KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method)]
}

impl Around for Call {
    async fn finish<E, F>(mut self, answer: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let span = self.span.clone();
        match span.around(async move { answer().await }).await {
            Ok(response) => {
                self.see_trailers(response.headers());
                Ok(keep_with(response, self))
            }
            Err(error) => {
                self.code = Some(Code::Unavailable);
                Err(error)
            }
        }
    }
}

impl Keep for Call {
    fn see_trailers(&mut self, trailers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(trailers) {
            self.see(&status);
        }
    }

    fn see_error(&mut self, error: &Status) {
        self.see(error);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let is_answered = self.code.is_some();
        let code = self.code.unwrap_or(Code::Cancelled);
        let name = code_name(code);
        let reason = self.reason.map(Reason::name);
        let error = (code != Code::Ok).then(|| reason.unwrap_or(name));
        let _entered = self.span.enter();
        self.span.set("rpc.response.status_code", name);
        if let Some(error) = error {
            self.span.set("error.type", error);
        }
        if self.is_error(code) {
            self.span.fail();
        }
        if self.side != Side::Unremarkable {
            self.measure(name, error);
        }
        let milliseconds = self.start.elapsed().as_micros() as f64 / 1e3;
        let (method, code) = (self.method, if is_answered { name } else { "CANCELLED_BY_CALLER" });
        match self.side {
            Side::Server => tracing::info!(method, code, reason, milliseconds, "call"),
            Side::Client => tracing::debug!(method, code, reason, milliseconds, "call to another service"),
            Side::Unremarkable => tracing::debug!(code, milliseconds, "call to gRPC's own services"),
        }
        self.span.end();
    }
}
