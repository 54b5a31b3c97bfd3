//! Failed TLS handshakes: one metric for all, and a log line for some.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use opentelemetry::metrics::Counter;
use parking_lot::Mutex;

use crate::telemetry::meter;

/// The time between two log lines. Anyone who reaches the port can make handshakes fail.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

static FAILED: LazyLock<Counter<u64>> = LazyLock::new(|| {
    meter()
        .u64_counter("tandem.server.tls.failed_handshakes")
        .with_unit("{handshake}")
        .with_description("TLS handshakes that failed: wrong or missing client certificates, or clients without TLS.")
        .build()
});

/// When the last line was written, and the failures since.
static LAST: Mutex<(Option<Instant>, u64)> = Mutex::new((None, 0));

/// Counts a failed handshake. Writes a warning unless one was written in the last seconds.
pub(super) fn failed(peer: Option<SocketAddr>, error: &std::io::Error) {
    FAILED.add(1, &[]);
    let mut last = LAST.lock();
    let (logged, unlogged) = &mut *last;
    if logged.is_some_and(|logged| logged.elapsed() < LOG_INTERVAL) {
        *unlogged += 1;
        return;
    }
    let more = std::mem::take(unlogged);
    *logged = Some(Instant::now());
    drop(last);
    let peer = peer.map(|peer| peer.to_string());
    tracing::warn!(peer, %error, unlogged = more, "TLS handshake failed");
}
