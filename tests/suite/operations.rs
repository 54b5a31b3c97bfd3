//! Operations: binaries, the control service, telemetry, and long runs.

mod binaries;
mod chat;
mod control;
mod dist;
mod dry_run;
mod generate;
mod gpu_proof;
mod images;
mod program;
mod root;
mod stress;
mod telemetry;
