//! The template engine.

mod analysis;
mod differential;
mod rendering;
