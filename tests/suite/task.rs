//! Tasks: RunTask, and fail-over between replicas.

mod envoy;
mod failover;
mod run_task;
