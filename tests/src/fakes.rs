//! Models without weights.

pub mod model;
