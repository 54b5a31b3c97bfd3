//! The generation service behind the [`Generator`](crate::task::generator::Generator) port:
//! discovery, health and routing of its replicas, and the calls to them.
//!
//! Each replica is asked for its health and its model once a second. A task goes only to replicas of
//! its model.
//!
//! Tasks with the same prompt prefix prefer the same replica, because its cache may contain the
//! prefix. A replica with clearly more than its share of tasks is skipped. A replica that fails is
//! avoided until its next successful health check. A replica that is stuck, much slower than the others or
//! breaks the contract is ejected for a while, whatever its health check reports. One that refuses a task
//! that another accepts or continues counts as failed.

mod client;
mod convert;
mod discovery;
mod ejection;
mod event_order;
mod failure;
mod health;
mod metrics;
mod output_size;
mod pace;
mod patience;
mod pool;
mod progress_check;
mod replica;
mod replicas;
mod routing;
mod served_model;
mod speed;

pub use client::GenerationClient;
pub use pool::{Availability, Config};
pub use replicas::HealthCounts;
