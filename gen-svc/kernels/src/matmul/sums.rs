//! The sums of a task before the epilogue, and the division of ranges.

use std::ops::Range;

use crate::isa::LANES;

/// Sums of products: \[panels\]\[tokens\]\[lanes\].
pub(super) type PanelSums = [[f32; LANES]];

/// Divides a range into consecutive ranges of at most `length`.
pub(super) fn split(range: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(length).map(move |start| start..(start + length).min(range.end))
}
