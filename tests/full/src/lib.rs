//! Helpers of the tests that need libtorch.

pub mod backend;
pub mod faulty_model;
pub mod flash;
pub mod image_checkpoint;
pub mod image_model;
pub mod operations;
pub mod picture;
pub mod vision_oracle;
