//! The metrics of the engine. Names and attributes follow OpenTelemetry's conventions for
//! generative AI if these define one. All other names start with `tandem.`.

use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use tandem_common::telemetry::meter;

use super::config::EngineLimits;
use crate::cache::{StateUsage, Usage};
use crate::models::{DeviceMemory, Gpu};

/// The current activity of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Requests that wait in the queue.
    pub queued: usize,
    /// Outputs that are being generated.
    pub running: usize,
    /// Tokens generated since the start, for all requests.
    pub tokens: u64,
    /// Outputs preempted since the start.
    pub preemptions: u64,
    /// Steps computed since the start.
    pub steps: u64,
    /// Blocks of the KV cache.
    pub kv_blocks: Usage,
    /// The slots of recurrent states.
    pub states: StateUsage,
    /// Rows of logits whose token was chosen since the start.
    pub rows: SampledRows,
}

/// Rows of logits, by the place where their token was chosen, or is given by the prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampledRows {
    /// Where libtorch keeps them.
    pub device: u64,
    /// On the host. If libtorch computes, they were fetched.
    pub host: u64,
}

impl AddAssign for SampledRows {
    fn add_assign(&mut self, more: Self) {
        self.device += more.device;
        self.host += more.host;
    }
}

/// The source of the current gauges. It returns None once the engine is dropped.
type Source = Arc<dyn Fn() -> Option<Gauges> + Send + Sync>;

/// Registers the instruments that observe the gauges of an engine, and its limits.
pub(super) fn observe(limits: EngineLimits, gauges: impl Fn() -> Option<Gauges> + Send + Sync + 'static) {
    let (meter, source): (Meter, Source) = (meter(), Arc::new(gauges));
    limit(&meter, "tandem.engine.max_queued", "{request}", "Limit of requests in the queue.", limits.max_queue);
    limit(&meter, "tandem.engine.max_running", "{output}", "Limit of running outputs.", limits.max_running);
    gauge(&meter, "tandem.engine.queued", "{request}", "Requests in the queue.", &source, |it| it.queued as u64);
    gauge(&meter, "tandem.engine.running", "{output}", "Running outputs.", &source, |it| it.running as u64);
    let block_size = "Tokens per block of the KV cache.";
    gauge(&meter, "tandem.engine.kv.block_size", "{token}", block_size, &source, |it| it.kv_blocks.positions as u64);
    counter(&meter, "tandem.engine.generated_tokens", "{token}", "Generated tokens.", &source, |it| it.tokens);
    counter(&meter, "tandem.engine.preemptions", "{output}", "Preempted outputs.", &source, |it| it.preemptions);
    counter(&meter, "tandem.engine.steps", "{step}", "Computed steps.", &source, |it| it.steps);
    observe_rows(&meter, &source);
    observe_states(&meter, &source);
    observe_blocks(&meter, source);
}

/// Registers the instrument that observes rows of logits.
fn observe_rows(meter: &Meter, source: &Source) {
    let source = Arc::clone(source);
    meter
        .u64_observable_counter("tandem.engine.sampled_rows")
        .with_unit("{row}")
        .with_description(
            "Rows of logits, by the place where their token was chosen. With libtorch, rows of the host were fetched \
             from the device.",
        )
        .with_callback(move |observer| {
            let Some(Gauges { rows: SampledRows { device, host }, .. }) = source() else { return };
            for (place, rows) in [("device", device), ("host", host)] {
                observer.observe(rows, &[KeyValue::new("place", place)]);
            }
        })
        .build();
}

/// Registers the instrument that observes recurrent states.
fn observe_states(meter: &Meter, source: &Source) {
    let source = Arc::clone(source);
    meter
        .u64_observable_gauge("tandem.engine.states")
        .with_unit("{state}")
        .with_description("Slots of recurrent states: held by sequences, kept for the prefix cache, or free.")
        .with_callback(move |observer| {
            let Some(Gauges { states: StateUsage { total, held, kept }, .. }) =
                source().filter(|it| it.states.total > 0)
            else {
                return;
            };
            for (state, count) in [("held", held), ("kept", kept), ("free", total - held - kept)] {
                observer.observe(count as u64, &[KeyValue::new("state", state)]);
            }
        })
        .build();
}

/// Registers the instruments that observe blocks of the KV cache.
fn observe_blocks(meter: &Meter, source: Source) {
    let held = Arc::clone(&source);
    meter
        .f64_observable_gauge("tandem.engine.kv.use")
        .with_unit("1")
        .with_description("Share of the KV cache's blocks that sequences hold, 0 to 1.")
        .with_callback(move |observer| {
            if let Some(Gauges { kv_blocks: Usage { total, held, .. }, .. }) =
                held().filter(|it| it.kv_blocks.total > 0)
            {
                observer.observe(held as f64 / total as f64, &[]);
            }
        })
        .build();
    meter
        .u64_observable_gauge("tandem.engine.kv.blocks")
        .with_unit("{block}")
        .with_description("Blocks of the KV cache: held by sequences, kept for the prefix cache, or free.")
        .with_callback(move |observer| {
            let Some(gauges) = source() else { return };
            let Usage { total, held, kept, .. } = gauges.kv_blocks;
            for (state, blocks) in [("held", held), ("kept", kept), ("free", total - held - kept)] {
                observer.observe(blocks as u64, &[KeyValue::new("state", state)]);
            }
        })
        .build();
}

/// Registers the instrument that observes the memory of GPUs.
pub(super) fn observe_gpus(gpus: impl Iterator<Item = Gpu>) {
    let gpus: Vec<_> = gpus.map(observed_gpu).collect();
    if gpus.is_empty() {
        return;
    }
    meter()
        .u64_observable_gauge("tandem.engine.gpu.memory")
        .with_unit("By")
        .with_description("Memory of each GPU, by its name and index: used by any process, or free.")
        .with_callback(move |observer| {
            for (gpu, attributes) in &gpus {
                let Some(DeviceMemory { free, total }) = gpu.memory() else { continue };
                for (state, bytes) in [("free", free), ("used", total - free)] {
                    let [name, index] = attributes.clone();
                    observer.observe(bytes, &[name, index, KeyValue::new("state", state)]);
                }
            }
        })
        .build();
}

/// Returns a GPU and its attributes.
fn observed_gpu(gpu: Gpu) -> (Gpu, [KeyValue; 2]) {
    let name = KeyValue::new("device", gpu.name.clone());
    let index = KeyValue::new("index", i64::try_from(gpu.index).unwrap_or(i64::MAX));
    (gpu, [name, index])
}

/// Records how long the model took to load.
pub fn loaded(took: Duration) {
    let meter = meter();
    let gauge = meter.f64_gauge("tandem.engine.load.duration").with_unit("s");
    gauge.with_description("Time to load the model.").build().record(took.as_secs_f64(), &[]);
}

/// Registers a gauge that never changes.
fn limit(meter: &Meter, name: &'static str, unit: &'static str, description: &'static str, limit: usize) {
    let gauge = meter.u64_gauge(name).with_unit(unit).with_description(description).build();
    gauge.record(limit as u64, &[]);
}

/// Defines a function that registers an instrument over one number of the gauges.
macro_rules! observed {
    ($name:ident, $instrument:ident) => {
        fn $name(
            meter: &Meter,
            name: &'static str,
            unit: &'static str,
            description: &'static str,
            source: &Source,
            number: fn(Gauges) -> u64,
        ) {
            let source = Arc::clone(source);
            let callback = move |observer: &dyn opentelemetry::metrics::AsyncInstrument<u64>| {
                if let Some(gauges) = source() {
                    observer.observe(number(gauges), &[]);
                }
            };
            meter.$instrument(name).with_unit(unit).with_description(description).with_callback(callback).build();
        }
    };
}

observed!(gauge, u64_observable_gauge);
observed!(counter, u64_observable_counter);
