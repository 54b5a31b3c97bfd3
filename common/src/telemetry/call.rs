//! Span, metrics and access log for every server and client call. They end with the response's
//! trailers or when the caller cancels.
//!
//! Names and attributes follow OpenTelemetry's conventions for gRPC. Trace context propagates as
//! W3C Trace Context.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use http::{HeaderMap, Request, Response};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Histogram;
use parking_lot::Mutex;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower::Layer as _;

use super::identity::Identity;
use super::meter::meter;
use super::span::Span;
use crate::call_layer::{BodyGuard, CallLayer, CallService, CallWork, on_body_end};
use crate::pb;
use crate::status::{Reason, code_name};

/// The header of tracing vendors' own data. A longer one than the specification requires is not
/// propagated.
const STATE_HEADER: &str = "tracestate";
const MAX_STATE_BYTES: usize = 512;

/// The method name of calls to unknown methods, and the name of callers beyond [`MAX_CALLERS`].
const OTHER: &str = "_OTHER";
/// The maximum number of callers that are named in metrics. A delegate may forward any number of names.
const MAX_CALLERS: usize = 256;

/// The upper bounds of the histograms' buckets: those of the conventions, and some below and above
/// them.
const BOUNDS_SECONDS: [f64; 20] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    30.0, 60.0,
];

/// The known methods, such as `tandem.render.v1.RenderService/Render`.
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
        duration("rpc.server.call.duration", "Duration of incoming calls, to the end of the response."),
        duration("rpc.client.call.duration", "Duration of outgoing calls, to the end of the response."),
    ]
});

/// The callers that are named in metrics.
static CALLERS: LazyLock<Mutex<HashSet<Arc<str>>>> = LazyLock::new(Mutex::default);

/// Returns the name of a caller in metrics: the first [`MAX_CALLERS`] names keep theirs.
fn measured_name(caller: &str) -> Arc<str> {
    let callers = &mut *CALLERS.lock();
    if let Some(known) = callers.get(caller) {
        return Arc::clone(known);
    }
    if callers.len() >= MAX_CALLERS {
        return OTHER.into();
    }
    let name = Arc::<str>::from(caller);
    callers.insert(Arc::clone(&name));
    name
}

fn duration(name: &'static str, description: &'static str) -> Histogram<f64> {
    meter()
        .f64_histogram(name)
        .with_unit("s")
        .with_description(description)
        .with_boundaries(BOUNDS_SECONDS.to_vec())
        .build()
}

/// A channel with telemetry of its calls, which propagate the trace context.
pub type Traced = CallService<fn(&mut Request<Body>) -> Call, Channel>;

/// Adds telemetry to a channel.
#[must_use]
pub fn traced(channel: Channel) -> Traced {
    CallLayer::new(Call::outgoing as fn(&mut Request<Body>) -> Call).layer(channel)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// An incoming call.
    Server,
    /// An outgoing call.
    Client,
    /// An incoming call to one of gRPC's own services, such as a health check: only logged.
    Infrastructure,
}

/// The telemetry of a call in progress.
#[derive(Debug)]
pub struct Call {
    side: Side,
    method: &'static str,
    span: Span,
    start: Instant,
    /// The last observed status; None at the end means that the caller cancelled.
    code: Option<Code>,
    reason: Option<Reason>,
}

impl Call {
    /// Starts the telemetry of an incoming call, as part of the trace in its headers.
    /// `is_authorized` is false for a caller without valid credentials.
    pub(crate) fn incoming(request: &mut Request<Body>, is_authorized: bool, caller_id: Arc<str>) -> Self {
        let identity = Identity::new(request.headers(), caller_id);
        if pb::is_standard_path(request.uri().path()) {
            return Self::new(Side::Infrastructure, OTHER, Span::none().with_identity(identity));
        }
        let state = request.headers().get_all(STATE_HEADER).iter().map(|value| value.len()).sum::<usize>();
        if state > MAX_STATE_BYTES {
            request.headers_mut().remove(STATE_HEADER);
        }
        let method = method(request);
        let span = Span::server(method, request.headers(), is_authorized, || attributes(method));
        Self::new(Side::Server, method, span.with_identity(identity))
    }

    /// Starts the telemetry of an outgoing call and propagates the trace context.
    fn outgoing(request: &mut Request<Body>) -> Self {
        let method = method(request);
        let span = Span::client(method, || attributes(method));
        span.add_to(request.headers_mut());
        Self::new(Side::Client, method, span)
    }

    fn new(side: Side, method: &'static str, span: Span) -> Self {
        Self { side, method, span, start: Instant::now(), code: None, reason: None }
    }

    /// Returns true if the call's span is marked as failed: for a server, on codes of the server's
    /// faults; for a client, on any failure.
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
        let mut attributes = vec![
            KeyValue::new("rpc.system.name", "grpc"),
            KeyValue::new("rpc.method", self.method),
            KeyValue::new("rpc.response.status_code", code),
        ];
        attributes.extend(error.map(|error| KeyValue::new("error.type", error)));
        if self.side == Side::Server {
            let caller = self.span.identity().and_then(|identity| identity.caller().map(measured_name));
            attributes.extend(caller.map(|caller| KeyValue::new("tandem.caller", caller)));
        }
        histogram.record(self.start.elapsed().as_secs_f64(), &attributes);
    }

    fn observe(&mut self, status: &Status) {
        self.code = Some(status.code());
        if status.code() != Code::Ok {
            let details = status.get_error_details();
            self.reason = details.error_info().and_then(|info| Reason::from_name(&info.reason));
        }
    }
}

/// Returns true for a call that each render service makes once a second, with its health check. Such
/// calls are not measured, since they would hide the share of failed ones.
fn is_routine(method: &str, code: &str) -> bool {
    method == "tandem.generate.v1.GenerateService/GetLoadedModel" && code == code_name(Code::Ok)
}

/// Returns the method of a request, or [`OTHER`] for an unknown one.
fn method(request: &Request<Body>) -> &'static str {
    METHODS.get(request.uri().path().trim_start_matches('/')).map_or(OTHER, String::as_str)
}

fn attributes(method: &'static str) -> [KeyValue; 2] {
    [KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method)]
}

impl CallWork for Call {
    async fn run<E, F>(mut self, call: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        let span = self.span.clone();
        match span.around(async move { call().await }).await {
            Ok(mut response) => {
                self.on_trailers(response.headers());
                if let Some(identity) = self.span.identity().filter(|_| self.side != Side::Client) {
                    identity.add_to(response.headers_mut());
                }
                Ok(on_body_end(response, self))
            }
            Err(error) => {
                self.code = Some(Code::Unavailable);
                Err(error)
            }
        }
    }
}

impl BodyGuard for Call {
    fn on_trailers(&mut self, trailers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(trailers) {
            self.observe(&status);
        }
    }

    fn on_error(&mut self, error: &Status) {
        self.observe(error);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let is_complete = self.code.is_some();
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
        if self.side != Side::Infrastructure && !is_routine(self.method, name) {
            self.measure(name, error);
        }
        let milliseconds = self.start.elapsed().as_micros() as f64 / 1e3;
        let (method, code) = (self.method, name);
        match self.side {
            Side::Server if is_routine(method, code) => tracing::debug!(method, milliseconds, "routine call"),
            Side::Server => tracing::info!(method, code, reason, is_complete, milliseconds, "call"),
            Side::Client => tracing::debug!(method, code, reason, is_complete, milliseconds, "outgoing call"),
            Side::Infrastructure => tracing::debug!(code, is_complete, milliseconds, "infrastructure call"),
        }
        self.span.end();
    }
}
