//! Every test, in one binary: a module per subject.

mod artifacts;
mod batch;
mod batching;
mod binaries;
mod blocks;
mod capabilities;
mod control_tokens;
mod corpus;
mod deepseek;
mod differential;
mod encoders;
mod engine;
mod facts;
mod failure;
mod family;
mod formats;
mod gemma4;
mod generate;
mod generate_cli;
mod gguf;
mod kernels;
mod kernels_gguf;
