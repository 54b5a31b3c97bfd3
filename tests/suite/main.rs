//! Every test, in one binary: a module per subject.

mod artifacts;
mod failure;
mod generate;
mod generate_cli;
mod gguf;
mod output;
mod render;
mod render_cli;
mod sampling;
mod task;
mod tokenizer;
mod transport;
