//! The engine of this process: one thread that owns the model and every tensor. Others have the same port,
//! [`TokenEngine`].
//!
//! Handlers send commands and receive events, both through channels. Running requests are computed
//! together, step by step: one token of each sequence in decode, and a chunk of the prompts in
//! prefill, shared fairly. Requests join and leave between steps. A cancelled call, a passed
//! deadline or a shutdown ends a request there.
//!
//! A slow reader is skipped while its channel is full, so that it delays no other request and its
//! memory stays bounded. Its request is cancelled after [`Config::reader_patience`]. When the KV
//! cache is full, the newest sequence is preempted and later resumes with the same tokens.

mod command;
mod config;
mod gpu_memory;
mod handle;
mod images;
mod local;
mod memory;
mod metrics;
mod pace;
mod port;
mod requests;
mod schedule;
mod sequence;
mod shared;
mod step;
mod step_clock;
mod thread;
mod warm_up;

/// The rules by which waiting requests of callers start, for every engine.
pub mod fairness {
    pub use super::schedule::admission::{by_long_wait, by_priority};
    pub use super::schedule::long_waits::LongWaits;
    pub use super::schedule::snapshot::Waiting;
}

pub use config::{Config, DeviceChoice, DeviceList, DtypeChoice, EngineLimits, Quantize};
pub use gpu_memory::{GpuMemory, MIN_CONTEXT, share_of};
pub use handle::Engine;
pub use memory::{cache_size, divide_measured as divide_memory, left_in_control_groups, require_context, require_free};
pub use metrics::{Gauges, SampledRows, loaded as record_load};
pub use port::{EngineEnded, ExternalEngine, Promise, TokenEngine};
pub use shared::GpuState;
pub use warm_up::{LargestImage, run as warm_up};
