//! The tests that need libtorch or several services, a module per area.

mod bridge;
mod operations;
mod serve;
mod task;
mod torch;
mod vectors;
