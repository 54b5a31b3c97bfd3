//! The caller's deadline, as gRPC carries it.

use std::time::{Duration, Instant};

use tonic::metadata::MetadataMap;

/// When the caller stops waiting, from its `grpc-timeout`. None without one, and for one that is malformed.
///
/// Format: at most eight digits and a unit (H, M, S, m, u, n), as in the gRPC over HTTP/2 specification.
#[must_use]
pub fn deadline(metadata: &MetadataMap) -> Option<Instant> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    Instant::now().checked_add(parse(text)?)
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}
