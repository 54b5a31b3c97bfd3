//! Tasks: RunTask, and fail-over between replicas.

mod envoy;
mod failover;
mod models;
mod run_task;
