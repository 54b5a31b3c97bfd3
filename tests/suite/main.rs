//! Every test, in one binary: a module per subject.

mod failure;
mod generate;
mod render;
mod render_cli;
mod task;
mod transport;
