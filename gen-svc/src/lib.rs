//! Tandem's generation service: runs one model and streams its tokens.

pub mod args;
pub mod cache;
pub mod cli;
pub mod command;
pub mod engine;
pub mod error;
mod executor;
pub mod grammar;
pub mod grpc;
mod heap;
pub mod lifecycle;
pub mod load;
pub mod media;
pub mod models;
pub mod openmp;
pub mod output;
pub mod request;
pub mod sampling;
pub mod serve;
pub mod torch;
pub mod weights;
