//! The metrics of requests. Names and attributes follow OpenTelemetry's conventions for generative AI if these define
//! one. All other names start with `tandem.`.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram};
use tandem_common::telemetry::meter;

use super::event::Timings;

/// Upper bounds of buckets: the conventions' bounds and, for small models, smaller bounds below
/// them.
const FIRST_TOKEN_SECONDS: [f64; 19] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const PER_TOKEN_SECONDS: [f64; 16] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
const REQUEST_SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Upper bounds of buckets.
const USAGE_TOKENS: [f64; 11] =
    [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];

/// The counters and histograms of the requests of one engine.
#[derive(Debug)]
pub(super) struct RequestMetrics {
    /// The attributes of all measurements.
    model: [KeyValue; 3],
    queue: Histogram<f64>,
    first_token: Histogram<f64>,
    per_token: Histogram<f64>,
    request: Histogram<f64>,
    usage: Histogram<u64>,
    cached: Counter<u64>,
    outputs: Counter<u64>,
    resumed: Counter<u64>,
}

impl RequestMetrics {
    pub(super) fn new(model: &str) -> Self {
        let meter = meter();
        let seconds = |name: &'static str, description: &'static str, bounds: &[f64]| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(description);
            histogram.with_boundaries(bounds.to_vec()).build()
        };
        let count = |name: &'static str, description| meter.u64_counter(name).with_description(description).build();
        Self {
            model: [
                KeyValue::new("gen_ai.operation.name", "text_completion"),
                KeyValue::new("gen_ai.provider.name", "tandem"),
                KeyValue::new("gen_ai.request.model", model.to_owned()),
            ],
            queue: seconds("tandem.engine.queue.duration", "Time of a request in the queue.", &REQUEST_SECONDS),
            first_token: seconds(
                "gen_ai.server.time_to_first_token",
                "Time from a request's arrival to its first token.",
                &FIRST_TOKEN_SECONDS,
            ),
            per_token: seconds(
                "gen_ai.server.time_per_output_token",
                "Mean time per output token of a request, without the first token.",
                &PER_TOKEN_SECONDS,
            ),
            request: seconds(
                "gen_ai.server.request.duration",
                "Time from a request's arrival to its last token.",
                &REQUEST_SECONDS,
            ),
            usage: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_description("Tokens of a request, in the prompt (input) or generated (output).")
                .with_boundaries(USAGE_TOKENS.to_vec())
                .build(),
            cached: count("tandem.engine.cached_tokens", "Prompt tokens found in the prefix cache."),
            outputs: count(
                "tandem.engine.outputs",
                "Ended outputs, by finish reason. A request that is rejected in the queue has no outputs.",
            ),
            resumed: count("tandem.engine.resumed", "Requests that resume an output of another replica."),
        }
    }

    /// Counts a request on arrival.
    pub(super) fn request_arrived(&self, is_resumed: bool) {
        self.resumed.add(u64::from(is_resumed), &self.model);
    }

    /// Records a request that leaves the queue.
    pub(super) fn request_started(&self, queue: Duration, cached_tokens: usize) {
        self.queue.record(queue.as_secs_f64(), &self.model);
        self.cached.add(cached_tokens as u64, &self.model);
    }

    /// Records the first token of a request.
    pub(super) fn first_token(&self, since_arrival: Duration) {
        self.first_token.record(since_arrival.as_secs_f64(), &self.model);
    }

    /// Counts the end of an output.
    pub(super) fn output_ended(&self, finish: &'static str) {
        self.outputs.add(1, &self.with(KeyValue::new("finish", finish)));
    }

    /// Records the end of a request with `outputs` outputs of about equal length.
    pub(super) fn request_ended(&self, timings: Timings, prompt: usize, generated: usize, outputs: usize) {
        let Timings { queue, prefill, decode } = timings;
        self.request.record((queue + prefill + decode).as_secs_f64(), &self.model);
        let after_first = generated / outputs.max(1);
        if after_first > 1 {
            self.per_token.record(decode.as_secs_f64() / (after_first - 1) as f64, &self.model);
        }
        for (kind, tokens) in [("input", prompt), ("output", generated)] {
            self.usage.record(tokens as u64, &self.with(KeyValue::new("gen_ai.token.type", kind)));
        }
    }

    fn with(&self, attribute: KeyValue) -> [KeyValue; 4] {
        let [operation, provider, model] = self.model.clone();
        [operation, provider, model, attribute]
    }
}

/// Returns a count as a span attribute.
pub(super) fn attribute_count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
