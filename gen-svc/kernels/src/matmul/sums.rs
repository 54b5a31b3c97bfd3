//! Results of a task before they are finished, and the cut of ranges.

use std::ops::Range;

use crate::isa::LANES;

/// Results that are kept: \[panels\]\[tokens\]\[lanes\].
pub(super) type PanelSums = [[f32; LANES]];

/// Consecutive ranges of at most `length`.
pub(super) fn split(range: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(length).map(move |start| start..(start + length).min(range.end))
}
