//! The image tokens of a step, as rows of numbers.
//!
//! Shapes: T tokens of a call, E hidden size.

use super::interface::{ImageRows, SequenceChunk};

/// Returns for each token of the chunks the end of the positions that it attends to. `None`: there
/// is no image, and each token attends to the positions up to its own.
pub fn ends(chunks: &[SequenceChunk<'_>]) -> Option<Vec<usize>> {
    let has_images = chunks.iter().any(|chunk| !chunk.images.is_empty());
    has_images.then(|| chunks.iter().flat_map(SequenceChunk::ends).collect())
}

/// Replaces the rows of image tokens in `x`, `[T, E]`, with E = `width`.
pub fn place(x: &mut [f32], chunks: &[SequenceChunk<'_>], width: usize) {
    for (first, image) in images(chunks) {
        x[(first + image.start) * width..][..image.rows.len()].copy_from_slice(image.rows);
    }
}

/// Adds the deep features for layer `layer` to the rows of image tokens in `x`, `[T, E]`.
pub fn deepen(x: &mut [f32], chunks: &[SequenceChunk<'_>], width: usize, layer: usize) {
    for (first, image) in images(chunks) {
        let Some(deep) = image.deep.get(layer) else { continue };
        let rows = &mut x[(first + image.start) * width..][..deep.len()];
        rows.iter_mut().zip(*deep).for_each(|(x, deep)| *x += deep);
    }
}

/// Returns every image, with the index of its chunk's first token among all tokens.
pub fn images<'a>(chunks: &'a [SequenceChunk<'a>]) -> impl Iterator<Item = (usize, &'a ImageRows<'a>)> {
    let firsts = chunks.iter().scan(0, |next, chunk| {
        let first = *next;
        *next += chunk.tokens.len();
        Some(first)
    });
    firsts.zip(chunks).flat_map(|(first, chunk)| chunk.images.iter().map(move |image| (first, image)))
}
