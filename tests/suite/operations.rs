//! Operations: binaries, the control service, telemetry, and long runs.

mod binaries;
mod control;
mod stress;
mod telemetry;
