//! The partial results of a chunk in one range of positions.

use crate::isa::WIDE;

/// A value that starts at a cache line, so that no vector of it crosses one.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// Sixteen numbers of a partial result.
pub(super) type Vector = Aligned<[f32; WIDE]>;

/// The sizes of a partial result.
#[derive(Clone, Copy)]
pub(super) struct PartialShape {
    pub(super) rows: usize,
    /// Vectors of a row's values: \[head_dim / 16, rounded up\].
    pub(super) vectors: usize,
}

/// The partial results of some rows.
pub(super) struct Partial<V, S> {
    /// The sums of the values weighted by exp(score - largest): \[rows\]\[head_dim / 16, rounded up\].
    pub(super) values: V,
    /// The largest scores: \[rows / 16, rounded up\].
    pub(super) greatest: S,
    /// The sums of the weights: \[rows / 16, rounded up\].
    pub(super) sums: S,
}

impl PartialShape {
    fn state_vectors(self) -> usize {
        self.rows.div_ceil(WIDE)
    }

    /// Returns the number of vectors.
    pub(super) fn length(self) -> usize {
        self.rows * self.vectors + 2 * self.state_vectors()
    }

    #[inline(always)]
    pub(super) fn split(self, vectors: &[Vector]) -> Partial<&[Vector], &[Vector]> {
        let (values, states) = vectors.split_at(self.rows * self.vectors);
        let (greatest, sums) = states.split_at(self.state_vectors());
        Partial { values, greatest, sums }
    }

    /// Returns the parts of a partial result without positions. Its values are unspecified.
    #[inline(always)]
    pub(super) fn clear(self, vectors: &mut [Vector]) -> Partial<&mut [Vector], &mut [Vector]> {
        let (values, states) = vectors.split_at_mut(self.rows * self.vectors);
        let (greatest, sums) = states.split_at_mut(self.state_vectors());
        greatest.fill(Aligned([f32::NEG_INFINITY; WIDE]));
        sums.fill(Aligned([0.0; WIDE]));
        Partial { values, greatest, sums }
    }
}
