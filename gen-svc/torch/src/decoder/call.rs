//! The inputs of one forward pass.

use tch::Tensor;

use super::layers::Rotation;
use super::paged::PagedKv;
use super::runs::Runs;

/// The inputs that all layers share.
pub(super) struct Call<'a> {
    /// The rotation of each rotary embedding.
    pub(super) rotations: Vec<Rotation>,
    pub(super) runs: Runs,
    pub(super) kv: &'a PagedKv,
    /// `[T, layers, P]`, the inputs of the layers.
    pub(super) inputs: Option<Tensor>,
}
