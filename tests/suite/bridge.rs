//! gen-bridge in front of llama.cpp's own HTTP server, in another process.

mod answers;
mod engines;
mod failures;
mod faults;
mod fields;
mod grammars;
mod life;
mod sglang;
mod vllm;
