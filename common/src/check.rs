//! `check`: asks a running service for its health, as a probe or a person would.

mod args;
mod health_check;

pub use args::CheckArgs;
pub use health_check::{Check, CheckError};
