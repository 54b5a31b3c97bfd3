//! render-svc: turns conversations into exact prompts. It is stateless and contains no tensor code.

pub mod adapter;
pub mod adapters;
pub mod args;
pub mod capabilities;
pub mod catalog;
pub mod cli;
pub mod clock;
pub mod command;
pub mod control_tokens;
pub mod conversation;
pub mod error;
pub mod executor;
pub mod generation;
pub mod grpc;
pub mod job;
pub mod limits;
pub mod metrics;
pub mod model;
pub mod output_spec;
pub mod prepare;
pub mod render;
pub mod resolve;
pub mod serve;
pub mod task;
pub mod tokenize;
pub mod warning;
