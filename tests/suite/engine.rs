//! The engine: steps, batching, architectures, and models' weights.

mod architectures;
mod batching;
mod buckets;
mod config;
mod drafts;
mod errors;
mod failures;
mod flash;
mod gpu_memory;
mod image_architectures;
mod image_prompts;
mod packed_weights;
mod placement;
mod sentencepiece;
mod steps;
mod tower_slices;
mod vision;
