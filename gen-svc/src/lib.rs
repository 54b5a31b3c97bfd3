//! Tandem's generation service: serves one model and streams its tokens.

pub mod args;
pub mod cli;
pub mod command;
mod executor;
pub mod grpc;
pub mod load;
pub mod program;
pub mod serve;
