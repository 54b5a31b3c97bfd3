//! The generation of tokens, from a validated request to clean text, without libtorch.
//!
//! The engine (`engine`) runs requests (`request`) on a model (`models`), whose backend computes steps
//! behind a port. The backend of the CPU's kernels is here, that of libtorch in `gen-svc/torch`.
//!
//! The order of imports, from the bottom: `error` ← `cache`, `heap`, `lifecycle` ← `weights`, `sampling` ←
//! `models` ← `media`, `grammar`, `output` ← `request` ← `answer` ← `engine` ← `library`.

pub mod answer;
pub mod cache;
pub mod engine;
pub mod error;
pub mod grammar;
pub mod heap;
pub mod library;
pub mod lifecycle;
pub mod media;
pub mod models;
pub mod output;
pub mod request;
pub mod sampling;
pub mod weights;
