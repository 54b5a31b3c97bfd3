//! The biases of a file that has no setting for them.

use super::decoder::{Decoder, FeedForward, Layer, Matrix, Mixer};
use crate::weights::ModelFile;

/// Gives each matrix the bias that the file has for it, if the file decides. As in llama.cpp, each
/// matrix of each layer is decided for itself.
pub(super) fn add(decoder: &mut Decoder, file: &ModelFile) {
    let layers = decoder.layers.iter_mut().flat_map(matrices);
    for matrix in layers.chain(&mut decoder.head) {
        matrix.bias = file.bias(&matrix.name).unwrap_or(matrix.bias);
    }
}

/// Returns the matrices of a layer that may have a bias.
fn matrices(layer: &mut Layer) -> impl Iterator<Item = &mut Matrix> {
    let feed_forward = match &mut layer.feed_forward {
        FeedForward::Gated(gated) => Some(gated.gate_up.iter_mut().chain([&mut gated.down])),
        FeedForward::Experts(_) => None,
    };
    let attention = match &mut layer.mixer {
        Mixer::Attention(attention) => Some(attention.qkv.iter_mut().chain([&mut attention.output])),
        Mixer::DeltaNet(_) => None,
    };
    attention.into_iter().flatten().chain(feed_forward.into_iter().flatten())
}
