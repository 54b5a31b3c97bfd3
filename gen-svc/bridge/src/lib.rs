//! Serves the generation contract in front of an engine in another process.
//!
//! The engine gets token ids and returns token ids. Text, stop strings, reasoning, limits, deadlines, the queue and
//! its fairness are those of `gen-svc/core`, from the tokenizer files beside the bridge. So the text of an answer does
//! not depend on the engine.
//!
//! A protocol is one file in `protocols/` and one row in [`protocols::ENGINES`].

pub mod args;
pub mod call;
mod choice;
mod driver;
pub mod engine;
mod grpc;
mod http;
mod identity;
mod json;
pub mod kind;
pub mod lack;
mod lark;
pub mod protocol;
pub mod protocols;
mod shared;
mod spawned;
mod sse;
pub mod start;
pub mod target;
mod turns;
