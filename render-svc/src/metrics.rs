//! The metrics of rendering and of tasks.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram};
use tandem_common::telemetry::meter;

use crate::render::Rendered;

/// Upper bounds in seconds, from a short conversation to the longest rendering that the limits
/// allow.
const BOUNDS_SECONDS: [f64; 17] = [
    0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 1.0, 5.0,
];

/// Metrics of rendering.
#[derive(Debug, Clone)]
pub struct RenderMetrics {
    stages: Histogram<f64>,
    warnings: Counter<u64>,
}

impl Default for RenderMetrics {
    fn default() -> Self {
        let stages = meter()
            .f64_histogram("tandem.render.duration")
            .with_unit("s")
            .with_description("Duration of a stage: the wait for a core, the rendering, the tokenizing.")
            .with_boundaries(BOUNDS_SECONDS.to_vec())
            .build();
        let warnings = meter()
            .u64_counter("tandem.render.warnings")
            .with_unit("{warning}")
            .with_description("Warnings of renderings, by code.")
            .build();
        Self { stages, warnings }
    }
}

impl RenderMetrics {
    /// Records the wait of a request for a core.
    pub fn waited(&self, time: Duration) {
        self.stages.record(time.as_secs_f64(), &[KeyValue::new("stage", "wait")]);
    }

    /// Records a rendered conversation.
    pub fn rendered(&self, rendered: &Rendered) {
        for warning in &rendered.warnings {
            self.warnings.add(1, &[KeyValue::new("code", warning.code.name())]);
        }
        let adapter = rendered.resolution.adapter.unwrap_or("hf_messages");
        for (stage, time) in [("render", rendered.render_time), ("tokenize", rendered.tokenize_time)] {
            if !time.is_zero() {
                let attributes = [KeyValue::new("stage", stage), KeyValue::new("adapter", adapter)];
                self.stages.record(time.as_secs_f64(), &attributes);
            }
        }
    }
}

/// Metrics of tasks.
#[derive(Debug, Clone)]
pub struct TaskMetrics {
    resumed: Counter<u64>,
}

impl Default for TaskMetrics {
    fn default() -> Self {
        let resumed = meter()
            .u64_counter("tandem.task.resumed")
            .with_description("Number of outputs resumed after a replica failed or ended them early.")
            .build();
        resumed.add(0, &[]);
        Self { resumed }
    }
}

impl TaskMetrics {
    /// Records that a task resumed its output.
    pub fn resumed(&self) {
        self.resumed.add(1, &[]);
    }
}
