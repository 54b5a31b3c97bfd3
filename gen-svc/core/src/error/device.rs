//! Failures of devices, and memory that they lack. It imports no other module.

use std::fmt;

/// A failure of the device that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceFault {
    /// The device has too little memory for a call. Later calls work.
    OutOfMemory,
    /// Every later call fails too: CUDA reports an error of a kernel until the process ends.
    Lost,
}

/// The memory that a part of the weights needs on its device, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNeed {
    /// The configured device.
    pub device: String,
    /// Bytes of the weights.
    pub needed: u64,
    /// The KV cache that must fit too.
    pub kv: KvNeed,
    /// Bytes that may be used.
    pub available: u64,
    /// All bytes of the device.
    pub total: u64,
}

/// The memory that a KV cache needs on a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvNeed {
    /// The smallest one that is of use.
    Least(u64),
    /// The part of the configured one.
    Configured(u64),
}

impl KvNeed {
    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Least(bytes) | Self::Configured(bytes) => bytes,
        }
    }
}

impl fmt::Display for KvNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.bytes().div_ceil(1 << 20);
        match self {
            Self::Least(_) => write!(f, "the smallest KV cache {mib} MiB"),
            Self::Configured(_) => write!(f, "the KV cache {mib} MiB (--kv-memory-mib)"),
        }
    }
}

impl DeviceNeed {
    /// Returns true if the memory suffices.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.needed.saturating_add(self.kv.bytes()) <= self.available
    }

    /// Returns the numbers of each device.
    pub(super) fn list(needs: &[Self]) -> String {
        let text = |Self { device, needed, kv, available, total }: &Self| {
            let (needed, available, total) = (needed.div_ceil(1 << 20), available >> 20, total >> 20);
            format!("{needed} MiB and {kv} on {device}, with {available} of {total} MiB left")
        };
        needs.iter().map(text).collect::<Vec<_>>().join(", and ")
    }
}
