//! Checksums, as they are shown.

use sha2::{Digest, Sha256};

/// Lower-case hex SHA-256.
pub fn hex_sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
