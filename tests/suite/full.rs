//! The tests that need libtorch or several services, a module per area.

mod engine;
mod generate;
mod operations;
mod serve;
mod task;
mod vectors;
