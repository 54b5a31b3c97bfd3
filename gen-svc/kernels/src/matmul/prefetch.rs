//! The distances of weight prefetches.
//!
//! The panels of a group are multiplied together, unit by unit. After the end of a panel follows the
//! next panel of the same group, which is already read. The next bytes to read are those of the next
//! group.

/// The bytes of a group that are prefetched ahead of the bytes in use.
const AHEAD: usize = 2 << 10;

/// Returns the distance from a unit of a panel to the unit that the same place of the group reads
/// [`AHEAD`] bytes, or at least one unit, later. A group has `group` panels of `units` units each.
#[inline(always)]
pub(super) fn distance(group: usize, unit: usize, units: usize, unit_bytes: usize) -> usize {
    let steps = (AHEAD / (group * unit_bytes)).clamp(1, units.max(1));
    if unit + steps < units { steps * unit_bytes } else { (steps + (group - 1) * units) * unit_bytes }
}
