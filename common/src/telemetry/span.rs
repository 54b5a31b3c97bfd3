//! Spans of the work on a call, which are exported to a collector. Of an unsampled trace, only the
//! trace context is kept, for logs and outgoing calls.

use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::{
    FutureExt as _, SpanContext, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState, Tracer as _,
    WithContext,
};
use opentelemetry::{Context, ContextGuard, KeyValue, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    IdGenerator as _, RandomIdGenerator, Sampler, SamplingDecision, SdkTracer, ShouldSample as _,
};

use super::identity::Identity;

/// The tracer that creates spans. Unset if no collector is configured.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();
/// The sampling ratio of traces that start in this process.
static SAMPLING_RATIO: OnceLock<f64> = OnceLock::new();

/// Installs the tracer and the sampling ratio of the process. Later calls have no effect.
pub(super) fn install(tracer: Option<SdkTracer>, ratio: f64) {
    if SAMPLING_RATIO.set(ratio).is_ok()
        && let Some(tracer) = tracer
    {
        let _ = TRACER.set(tracer);
    }
}

/// The span of a piece of work. It ends when its last clone is dropped, or earlier at
/// [`end`](Self::end).
#[derive(Debug, Clone)]
pub struct Span(Context);

impl Span {
    /// Returns a span without a trace.
    #[must_use]
    pub fn none() -> Self {
        Self(Context::new())
    }

    /// Returns the span that this thread has entered.
    #[must_use]
    pub fn current() -> Self {
        Self(Context::current())
    }

    /// Starts a child span. Returns the parent itself if the trace is not sampled or no collector
    /// is configured.
    #[must_use]
    pub fn part<const N: usize>(&self, name: &'static str, attributes: impl FnOnce() -> [KeyValue; N]) -> Self {
        self.part_of_kind(SpanKind::Internal, name, attributes)
    }

    /// Starts the span of an incoming call, in the trace that the call's headers name. If the peer
    /// is untrusted, the span is not exported.
    pub(super) fn server<const N: usize>(
        name: &'static str,
        headers: &HeaderMap,
        is_trusted: bool,
        attributes: impl FnOnce() -> [KeyValue; N],
    ) -> Self {
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
        let context = parent.span().span_context().clone();
        match TRACER.get() {
            Some(tracer) if is_trusted => build(tracer, SpanKind::Server, name, attributes(), &parent),
            None if is_trusted && context.is_valid() => Self(parent),
            _ => unexported(context.is_valid().then_some(context.trace_id()), is_trusted),
        }
    }

    /// Starts the span of an outgoing call.
    pub(super) fn client<const N: usize>(name: &'static str, attributes: impl FnOnce() -> [KeyValue; N]) -> Self {
        Self::current().part_of_kind(SpanKind::Client, name, attributes)
    }

    fn part_of_kind<const N: usize>(
        &self,
        kind: SpanKind,
        name: &'static str,
        attributes: impl FnOnce() -> [KeyValue; N],
    ) -> Self {
        match TRACER.get() {
            Some(tracer) if self.0.span().span_context().is_sampled() => {
                build(tracer, kind, name, attributes(), &self.0)
            }
            _ => self.clone(),
        }
    }

    /// Returns the same span in a context with the call's identity.
    pub(super) fn with_identity(&self, identity: Identity) -> Self {
        Self(self.0.with_value(identity))
    }

    /// Returns the identity of the call that this span is part of.
    /// Returns the id of the caller whose call this span belongs to, or `local` outside of a call.
    #[must_use]
    pub fn caller_id(&self) -> Arc<str> {
        self.identity().map_or_else(|| "local".into(), |identity| Arc::clone(identity.caller_id()))
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        self.0.get()
    }

    /// Adds the trace context, the request id and the caller to the headers of an outgoing call.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        TraceContextPropagator::new().inject_context(&self.0, &mut HeadersMut(headers));
        if let Some(identity) = self.identity() {
            identity.forward_in(headers);
        }
    }

    /// Sets an attribute.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(key, value));
    }

    /// Marks the span as failed.
    pub fn fail(&self) {
        self.0.span().set_status(Status::error(""));
    }

    /// Ends the span, even if clones of it remain.
    pub(super) fn end(&self) {
        self.0.span().end();
    }

    /// Makes this span the thread's current span until the guard is dropped.
    pub fn enter(&self) -> ContextGuard {
        self.0.clone().attach()
    }

    /// Runs `work` with this span as the thread's current span.
    pub fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        work()
    }

    /// Wraps a future so that this span is the current span while the future is polled.
    pub fn around<F>(&self, future: F) -> WithContext<F> {
        future.with_context(self.0.clone())
    }
}

/// Returns a span with a new id that is not exported, in `trace` or in a new trace.
fn unexported(trace: Option<TraceId>, is_trusted: bool) -> Span {
    let ids = RandomIdGenerator::default();
    let trace = trace.unwrap_or_else(|| ids.new_trace_id());
    let ratio = if is_trusted { SAMPLING_RATIO.get().copied().unwrap_or(0.0) } else { 0.0 };
    let sampler = Sampler::TraceIdRatioBased(ratio);
    let sampled = sampler.should_sample(None, trace, "", &SpanKind::Server, &[], &[]).decision;
    let flags = TraceFlags::default().with_sampled(sampled == SamplingDecision::RecordAndSample);
    let context = SpanContext::new(trace, ids.new_span_id(), flags, false, TraceState::default());
    Span(Context::new().with_remote_span_context(context))
}

fn build<const N: usize>(
    tracer: &SdkTracer,
    kind: SpanKind,
    name: &'static str,
    attributes: [KeyValue; N],
    parent: &Context,
) -> Span {
    let span = tracer.span_builder(name).with_kind(kind).with_attributes(attributes);
    Span(parent.with_span(tracer.build_with_context(span, parent)))
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        // The propagator sets an empty `tracestate`.
        if value.is_empty() {
            return;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}
