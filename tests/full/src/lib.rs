//! Helpers of the tests that need libtorch or another engine.

pub mod backend;
pub mod faulty_model;
pub mod flash;
pub mod gguf_pair;
pub mod image_checkpoint;
pub mod image_model;
pub mod llama;
pub mod operations;
pub mod picture;
pub mod vision_oracle;
