//! The inputs of one forward pass.

use super::layers::Rotation;
use super::paged::{PagedKv, Runs};

/// The inputs that all layers share.
pub(super) struct Call<'a> {
    /// By [`Decoder::ropes`].
    pub(super) rotations: Vec<Rotation>,
    pub(super) runs: Runs,
    pub(super) kv: &'a PagedKv,
}
