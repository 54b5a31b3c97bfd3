//! render-svc: from a conversation to what a model must be fed. Stateless; knows nothing of tensors.

pub mod adapters;
pub mod args;
pub mod calls;
pub mod capabilities;
pub mod chat;
pub mod cli;
pub mod clock;
pub mod control_tokens;
pub mod error;
pub mod generation;
pub mod grpc;
pub mod hf_messages;
pub mod json;
pub mod limits;
pub mod media;
pub mod meters;
pub mod models;
pub mod origins;
pub mod output_spec;
pub mod render;
pub mod serve;
pub mod task;
pub mod tools;
