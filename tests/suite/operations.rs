//! Operations: binaries, the control service, telemetry, and long runs.

mod binaries;
mod chat;
mod control;
mod stress;
mod telemetry;
