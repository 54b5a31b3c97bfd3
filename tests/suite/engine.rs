//! The engine on a model of the CPU's kernels, or of the test's own: steps, batches, and models' weights.

mod batching;
mod config;
mod drafts;
mod errors;
mod folders;
mod gguf_keys;
mod packed_weights;
mod port;
mod sentencepiece;
mod states;
mod steps;
mod tensors;
