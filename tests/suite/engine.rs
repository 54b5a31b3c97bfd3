//! The engine: steps, batching, architectures, and models' weights.

mod architectures;
pub(crate) mod batching;
mod config;
mod errors;
mod packed_weights;
mod sentencepiece;
mod steps;
