//! What is measured of the engine. Names and attributes of what any server of models has are those of OpenTelemetry's conventions for
//! generative AI; the rest is under `tandem.`.

use std::sync::Weak;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use tandem_common::telemetry::meter;

use super::{Gauges, Shared, Timings};
use crate::cache::{BLOCK, Usage};

/// Upper bounds, in seconds. The conventions', with finer ones below, for small models.
const FIRST_TOKEN: [f64; 19] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const PER_TOKEN: [f64; 16] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
const REQUEST: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Upper bounds, in tokens.
const TOKENS: [f64; 11] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];

/// Counters and histograms of one engine.
#[derive(Debug)]
pub(super) struct EngineMetrics {
    /// What all measurements have: which model it is.
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

impl EngineMetrics {
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
            queue: seconds("tandem.engine.queue.duration", "How long requests waited before they ran.", &REQUEST),
            first_token: seconds(
                "gen_ai.server.time_to_first_token",
                "From a request's arrival to its first token.",
                &FIRST_TOKEN,
            ),
            per_token: seconds(
                "gen_ai.server.time_per_output_token",
                "Mean time of a request's tokens after the first.",
                &PER_TOKEN,
            ),
            request: seconds("gen_ai.server.request.duration", "From a request's arrival to its last token.", &REQUEST),
            usage: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_description("Tokens of a request: of its prompt (input), or generated for it (output).")
                .with_boundaries(TOKENS.to_vec())
                .build(),
            cached: count("tandem.engine.cached_tokens", "Tokens of prompts that were computed for earlier requests."),
            outputs: count(
                "tandem.engine.outputs",
                "Outputs that ended, by how. Requests that are refused while they wait have none.",
            ),
            resumed: count("tandem.engine.resumed", "Requests that go on with an answer begun elsewhere."),
        }
    }

    /// A request arrived.
    pub(super) fn arrived(&self, is_resumed: bool) {
        self.resumed.add(u64::from(is_resumed), &self.model);
    }

    /// A request left the queue.
    pub(super) fn started(&self, queue: Duration, cached_tokens: usize) {
        self.queue.record(queue.as_secs_f64(), &self.model);
        self.cached.add(cached_tokens as u64, &self.model);
    }

    /// A request has its first token.
    pub(super) fn first_token(&self, since_arrival: Duration) {
        self.first_token.record(since_arrival.as_secs_f64(), &self.model);
    }

    /// An output ended.
    pub(super) fn output_ended(&self, finish: &'static str) {
        self.outputs.add(1, &self.with(KeyValue::new("finish", finish)));
    }

    /// All outputs of a request ended, `outputs` of them. Each generated about as many tokens.
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

/// Tells what the engine is doing, whenever someone looks, as long as there is one.
pub(super) fn observe(shared: &Weak<Shared>) {
    let meter = meter();
    gauge(&meter, "tandem.engine.queued", "{request}", "Requests that wait.", shared, |it| it.queued as u64);
    gauge(&meter, "tandem.engine.running", "{output}", "Outputs that are generated.", shared, |it| it.running as u64);
    gauge(&meter, "tandem.engine.kv.block_size", "{token}", "Tokens of a block of keys and values.", shared, |_| {
        BLOCK as u64
    });
    counter(&meter, "tandem.engine.generated_tokens", "{token}", "Tokens generated.", shared, |it| it.tokens);
    let preemptions = "Outputs that gave their memory up and waited again.";
    counter(&meter, "tandem.engine.preemptions", "{output}", preemptions, shared, |it| it.preemptions);
    let shared = Weak::clone(shared);
    meter
        .u64_observable_gauge("tandem.engine.kv.blocks")
        .with_unit("{block}")
        .with_description(
            "Blocks of the memory for keys and values: held by what runs, kept for later requests, or free.",
        )
        .with_callback(move |observer| {
            let Some(shared) = shared.upgrade() else { return };
            let Usage { total, held, kept } = shared.gauges().kv_blocks;
            for (state, blocks) in [("held", held), ("kept", kept), ("free", total - held - kept)] {
                observer.observe(blocks as u64, &[KeyValue::new("state", state)]);
            }
        })
        .build();
}

/// An instrument that looks at the engine.
macro_rules! observed {
    ($name:ident, $instrument:ident) => {
        fn $name(
            meter: &Meter,
            name: &'static str,
            unit: &'static str,
            description: &'static str,
            shared: &Weak<Shared>,
            look: fn(Gauges) -> u64,
        ) {
            let shared = Weak::clone(shared);
            let callback = move |observer: &dyn opentelemetry::metrics::AsyncInstrument<u64>| {
                if let Some(shared) = shared.upgrade() {
                    observer.observe(look(shared.gauges()), &[]);
                }
            };
            meter.$instrument(name).with_unit(unit).with_description(description).with_callback(callback).build();
        }
    };
}

observed!(gauge, u64_observable_gauge);
observed!(counter, u64_observable_counter);
