//! Spans: what the work on a call is made of, for a collector. Without one, and in traces that are not told of, there is only a pair of
//! ids per call that we answer, its caller's if it has one: log lines carry them, and the next service gets to know them.

use std::sync::OnceLock;

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

/// Makes spans, once there is a collector to tell of them.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();
/// Of the traces that begin here, the share that is told of, by whoever is on their way.
static RATIO: OnceLock<f64> = OnceLock::new();

/// From now on spans are made by `tracer`, if there is one. The first call counts: a process has one.
pub(super) fn tell(tracer: Option<SdkTracer>, ratio: f64) {
    if RATIO.set(ratio).is_ok()
        && let Some(tracer) = tracer
    {
        let _ = TRACER.set(tracer);
    }
}

/// A piece of work. It ends when the last of its clones is dropped, or before.
#[derive(Debug, Clone)]
pub struct Span(Context);

impl Span {
    /// That of no work.
    #[must_use]
    pub fn none() -> Self {
        Self(Context::new())
    }

    /// That of the work that this thread is doing.
    #[must_use]
    pub fn current() -> Self {
        Self(Context::current())
    }

    /// A part of this work. If nobody is told of the whole, its parts are not told apart.
    #[must_use]
    pub fn part<const N: usize>(&self, name: &'static str, attributes: impl FnOnce() -> [KeyValue; N]) -> Self {
        self.part_of_kind(SpanKind::Internal, name, attributes)
    }

    /// The answer to a call. It belongs to the trace that the call's headers name; is it not to be trusted, it is told to nobody.
    pub(super) fn answer<const N: usize>(
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
            _ => begun(context.is_valid().then_some(context.trace_id()), is_trusted),
        }
    }

    /// A call to another service.
    pub(super) fn call<const N: usize>(name: &'static str, attributes: impl FnOnce() -> [KeyValue; N]) -> Self {
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

    /// Tells the service that a request goes to.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        TraceContextPropagator::new().inject_context(&self.0, &mut HeadersMut(headers));
    }

    /// Adds what is known by now.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(key, value));
    }

    /// It failed.
    pub fn fail(&self) {
        self.0.span().set_status(Status::error(""));
    }

    /// It ends now, whoever still holds it.
    pub(super) fn end(&self) {
        self.0.span().end();
    }

    /// What this thread does is part of it, until the guard is dropped.
    pub fn enter(&self) -> ContextGuard {
        self.0.clone().attach()
    }

    /// Does a part of it.
    pub fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        work()
    }

    /// What the future does is part of it.
    pub fn around<F>(&self, future: F) -> WithContext<F> {
        future.with_context(self.0.clone())
    }
}

/// Ids alone, of a trace that begins here, or goes on without its parts being told.
fn begun(trace: Option<TraceId>, is_trusted: bool) -> Span {
    let ids = RandomIdGenerator::default();
    let trace = trace.unwrap_or_else(|| ids.new_trace_id());
    let ratio = if is_trusted { RATIO.get().copied().unwrap_or(0.0) } else { 0.0 };
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
    Span(Context::new().with_span(tracer.build_with_context(span, parent)))
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
        // An empty one says nothing.
        if value.is_empty() {
            return;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}
