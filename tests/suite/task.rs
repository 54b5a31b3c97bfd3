//! Tasks: RunTask, and fail-over between replicas.

mod callers;
mod envoy;
mod failover;
mod images;
mod models;
mod run_task;
mod tool_choice;
