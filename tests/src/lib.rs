//! Helpers of the tests, by role. None needs libtorch. The helpers that need it are in
//! `tests/full`.

pub mod answers;
pub mod conversations;
pub mod corpus;
pub mod error_texts;
pub mod failure;
pub mod fakes;
mod files;
pub mod generate_command;
mod generation;
pub mod gguf_file;
pub mod gguf_pair;
mod goldens;
pub mod host_sampler;
pub mod llama;
pub mod module_graph;
pub mod newer;
mod process;
mod random;
mod rendering;
pub mod resumed;
pub mod safetensors_file;
pub mod sentencepiece;
pub mod served_model;
mod services;
mod terminal;
pub mod tiny_llama;
mod tiny_model;
pub mod tokenizers;
pub mod vllm;

pub use files::{
    binary, corpus, default_artifacts, default_model, envoy, program, python, repository, scratch, text_only_program,
};
pub use generation::Generation;
pub use goldens::{Golden, goldens};
pub use process::Process;
pub use random::{Random, scramble};
pub use rendering::{AdapterRequest, answer};
pub use services::{
    Running, catalog, default_catalog, render_service, render_service_with_args, serve_catalog,
    serve_catalog_with_generation, serve_catalog_with_generator,
};
pub use terminal::Terminal;
pub use tiny_model::{ModelFolder, byte_tokenizer};

use std::time::{Duration, Instant};

/// Waits for a condition, 20 seconds at most.
///
/// # Panics
/// If it does not hold by then.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}
