//! The template engine.

mod analysis;
mod clock;
mod differential;
mod rendering;
