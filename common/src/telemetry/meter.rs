//! The meter of the process.

use opentelemetry::global;
use opentelemetry::metrics::Meter;

/// Returns the meter for metrics.
///
/// Metrics are recorded after `Telemetry::start`, if they are exported or have a page.
#[must_use]
pub fn meter() -> Meter {
    global::meter("tandem")
}
