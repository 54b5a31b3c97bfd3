//! Models without weights, and replicas of the generation service that play events.

pub mod model;
pub mod replica;
