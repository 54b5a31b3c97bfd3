//! Which weights are prefetched.
//!
//! The panels of a group are multiplied together, unit by unit. Beyond the end of a panel is the next panel of the
//! group, which has been read then, so that the bytes to prefetch are those of the next group.

/// The bytes of a group that are prefetched ahead of the bytes in use.
const AHEAD: usize = 2 << 10;

/// Returns the distance from a unit of a panel to the unit that is read in its place [`AHEAD`] bytes later: in the same
/// panel, or in that of the next group. A group has `group` panels of `units` units each.
#[inline(always)]
pub(super) fn distance(group: usize, unit: usize, units: usize, unit_bytes: usize) -> usize {
    let steps = (AHEAD / (group * unit_bytes)).max(1);
    if unit + steps < units { steps * unit_bytes } else { (steps + (group - 1) * units) * unit_bytes }
}
