//! The tests that need no libtorch, a module per area.

mod chat;
mod contract;
mod engine;
mod generate;
mod images;
mod kernels;
mod model_files;
mod network;
mod render;
mod source;
mod template;
mod tokenizer;
