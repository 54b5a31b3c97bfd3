//! Failed TLS handshakes: one metric for all, and a log line for some.

use std::net::SocketAddr;
use std::sync::LazyLock;

use opentelemetry::metrics::Counter;

use crate::log_limit::{LogLimit, PEER_INTERVAL};
use crate::telemetry::meter;

static FAILED: LazyLock<Counter<u64>> = LazyLock::new(|| {
    meter()
        .u64_counter("tandem.server.tls.failed_handshakes")
        .with_unit("{handshake}")
        .with_description("TLS handshakes that failed: wrong or missing client certificates, or clients without TLS.")
        .build()
});

static LOG_LIMIT: LogLimit = LogLimit::new(PEER_INTERVAL);

/// Counts a failed handshake. Writes a warning unless one was written in the last seconds.
pub(super) fn failed(peer: Option<SocketAddr>, error: &std::io::Error) {
    FAILED.add(1, &[]);
    if let Some(unlogged) = LOG_LIMIT.permit() {
        let peer = peer.map(|peer| peer.to_string());
        tracing::warn!(peer, %error, unlogged, "TLS handshake failed");
    }
}
