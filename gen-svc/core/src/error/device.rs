//! Failures of devices, recognized in libtorch's errors, and memory that they lack. It imports no other
//! module.

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
    /// The KV cache beside them.
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

/// Parts of the first line that mean too little memory: of libtorch's allocator for a GPU and of the
/// driver, of cuBLAS and cuDNN, and of libtorch's allocator for the CPU. cuBLAS and cuDNN report that they
/// are not initialized if they find no memory for themselves.
const OUT_OF_MEMORY: [&str; 4] =
    ["out of memory", "_status_alloc_failed", "_status_not_initialized", "defaultcpuallocator: can't allocate memory"];
/// Parts of the first line that mean a call which cuBLAS or cuDNN refuse. Later calls work.
const REFUSED: [&str; 3] = ["_status_not_supported", "_status_invalid_value", "_status_bad_param"];
/// Parts of the first line of the other errors of CUDA and of its libraries.
const LOST: [&str; 5] = ["cuda error", "cuda driver error", "cublas_status_", "cudnn_status_", "cudnn error"];

impl DeviceFault {
    /// Returns the fault that an error of libtorch reports. tch passes only the error's text. The
    /// first line has the message; the stack below it names CUDA's libraries in every error.
    pub fn of(text: &str) -> Option<Self> {
        let line = text.lines().next().unwrap_or_default().to_ascii_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| line.contains(part));
        if has(&OUT_OF_MEMORY) {
            return Some(Self::OutOfMemory);
        }
        (has(&LOST) && !has(&REFUSED)).then_some(Self::Lost)
    }
}
