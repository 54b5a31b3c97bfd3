//! Every test, in one binary: a module per subject.

mod artifacts;
mod binaries;
mod capabilities;
mod deepseek;
mod differential;
mod engine;
mod facts;
mod failure;
mod formats;
mod gemma4;
mod generate;
mod generate_cli;
mod gguf;
mod output;
mod render;
mod render_cli;
mod sampling;
mod task;
mod template;
mod tokenizer;
mod transport;
