//! The engine: steps, batching, architectures, and models' weights.

mod architectures;
mod batching;
mod config;
mod errors;
mod packed_weights;
mod sentencepiece;
mod steps;
