//! Gauges of the replicas.

use std::sync::{Arc, Weak};

use opentelemetry::KeyValue;
use tandem_common::telemetry::meter;

use super::replicas::{HealthCounts, Replicas};

/// Registers the gauges of the replicas. They report until the set of replicas is dropped.
pub(super) fn observe(replicas: &Arc<Replicas>) {
    observe_health(Arc::downgrade(replicas));
    observe_tasks(Arc::downgrade(replicas));
    observe_ejected(Arc::downgrade(replicas));
}

fn observe_ejected(replicas: Weak<Replicas>) {
    meter()
        .u64_observable_gauge("tandem.generation.replicas.ejected")
        .with_unit("{replica}")
        .with_description("Replicas that are left out after an ejection, whatever their health.")
        .with_callback(move |observer| {
            if let Some(replicas) = replicas.upgrade() {
                observer.observe(replicas.ejected() as u64, &[]);
            }
        })
        .build();
}

/// Dashboards and alerts select the values of the attribute `health`.
fn observe_health(replicas: Weak<Replicas>) {
    meter()
        .u64_observable_gauge("tandem.generation.replicas")
        .with_unit("{replica}")
        .with_description("Replicas of the generation service, by their health.")
        .with_callback(move |observer| {
            let Some(replicas) = replicas.upgrade() else { return };
            let HealthCounts { healthy, unknown, unhealthy } = replicas.health_counts();
            for (health, count) in [("healthy", healthy), ("unknown", unknown), ("unhealthy", unhealthy)] {
                observer.observe(count as u64, &[KeyValue::new("health", health)]);
            }
        })
        .build();
}

fn observe_tasks(replicas: Weak<Replicas>) {
    meter()
        .u64_observable_gauge("tandem.task.running")
        .with_unit("{task}")
        .with_description("Tasks that run on the generation service.")
        .with_callback(move |observer| {
            if let Some(replicas) = replicas.upgrade() {
                observer.observe(replicas.tasks() as u64, &[]);
            }
        })
        .build();
}
