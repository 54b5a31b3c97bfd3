//! The generation service behind the [`Generator`](crate::task::generator::Generator) port:
//! discovery, health and routing of its replicas, and the calls to them.
//!
//! A task prefers the replica that served other prompts with the same prefix, whose cache may still
//! hold it, unless that replica has clearly more than its share of tasks. A replica that fails is
//! avoided until its next successful health check.

mod client;
mod convert;
mod discovery;
mod failure;
mod metrics;
mod pool;
mod replica;
mod replicas;
mod routing;

pub use client::GenerationClient;
pub use pool::Config;
pub use replicas::HealthCounts;
