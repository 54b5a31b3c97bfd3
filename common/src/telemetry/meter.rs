//! The meter of the process.

use opentelemetry::metrics::Meter;
use opentelemetry::{KeyValue, global};
use serde_json::{Map, Value};

use crate::program::{Build, fingerprint};

/// Returns the meter for metrics.
///
/// Metrics are recorded after `Telemetry::start`, if they are exported or have a page.
#[must_use]
pub fn meter() -> Meter {
    global::meter("tandem")
}

/// Records the program, its version and commit, and a fingerprint of its settings, as attributes of a
/// gauge that is 1. Replicas that should be equal have equal attributes.
pub fn record_service(build: &Build, settings: &Map<String, Value>) {
    let meter = meter();
    let gauge = meter.u64_gauge("tandem.service.info");
    let gauge = gauge.with_description("1. The attributes are the version and a fingerprint of the settings.").build();
    let attributes = [
        KeyValue::new("program", build.name),
        KeyValue::new("version", Build::VERSION),
        KeyValue::new("commit", build.commit()),
        KeyValue::new("settings", fingerprint(settings)),
    ];
    gauge.record(1, &attributes);
}
