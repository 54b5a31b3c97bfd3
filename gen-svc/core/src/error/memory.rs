//! Memory that a model needs and a machine lacks.

use tandem_common::status::Reason;

use super::device::{DeviceNeed, KvNeed};
use super::step::StepError;

/// Why the memory does not suffice.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The weights need more memory than is free.
    #[error("weights need {needed} bytes, {available} bytes are free")]
    Weights {
        /// Bytes of the loaded weights.
        needed: u64,
        /// Free bytes.
        available: u64,
    },
    /// The weights and the KV cache need more memory than a GPU has left for this process.
    #[error(
        "weights need {} MiB and {kv}, {} MiB of {device} are left: {share} of {} MiB, less the used memory",
        needed.div_ceil(1 << 20),
        available >> 20,
        total >> 20
    )]
    Gpu {
        /// The configured device.
        device: String,
        /// Bytes of the loaded weights.
        needed: u64,
        /// The KV cache that must fit too.
        kv: KvNeed,
        /// Bytes of the share that are not used.
        available: u64,
        /// The configured share.
        share: f64,
        /// All bytes of the GPU.
        total: u64,
    },
    /// The configured KV cache needs more memory than the weights and a step leave on a GPU.
    #[error(
        "KV cache needs {} MiB (--kv-memory-mib), weights and a step leave {} MiB of {device}: {share} of {} MiB",
        needed.div_ceil(1 << 20),
        available >> 20,
        total >> 20
    )]
    GpuKv {
        /// The configured device.
        device: String,
        /// Bytes of its part of the KV cache.
        needed: u64,
        /// Bytes of the share that are not used.
        available: u64,
        /// The configured share.
        share: f64,
        /// All bytes of the GPU.
        total: u64,
    },
    /// A step of the largest shapes needs more memory than the weights leave.
    #[error(
        "a step of {prefill_chunk} prompt tokens (--prefill-chunk) and {max_running} outputs (--max-running){} \
         exceeds the memory that the weights leave",
        if *has_image { " beside the largest image (--max-image-pixels)" } else { "" }
    )]
    Step {
        /// The configured tokens.
        prefill_chunk: usize,
        /// The configured outputs.
        max_running: usize,
        /// True if the model has images.
        has_image: bool,
        /// The backend's error.
        source: StepError,
    },
    /// The largest image needs more memory than the weights leave.
    #[error(
        "the largest image, of {} MiB of pixel values {shape:?}, exceeds the memory that the weights leave \
         (--max-image-pixels)",
        shape.iter().product::<usize>() >> 18
    )]
    Image {
        /// The shape of its pixel values.
        shape: Vec<usize>,
        /// The backend's error, or the lack of room for the KV cache.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A part of the weights needs more memory than its GPU has left for this process.
    #[error("weights need {}: {share} of each, less the used memory", DeviceNeed::list(needs))]
    Gpus {
        /// The bytes on each GPU, divided so that the fewest are missing on one.
        needs: Vec<DeviceNeed>,
        /// The configured share.
        share: f64,
    },
    /// The KV cache has no room for a usable context.
    #[error("KV cache has {} MiB, minimum {} MiB (--kv-memory-mib)", bytes >> 20, least.div_ceil(1 << 20))]
    Kv {
        /// The size in bytes.
        bytes: u64,
        /// The least size in bytes.
        least: u64,
    },
}

impl MemoryError {
    /// Returns the stable reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Weights { .. } | Self::Gpu { .. } | Self::Gpus { .. } | Self::Step { .. } | Self::Image { .. } => {
                Reason::MemoryTooSmall
            }
            Self::Kv { .. } | Self::GpuKv { .. } => Reason::KvMemoryTooSmall,
        }
    }
}
