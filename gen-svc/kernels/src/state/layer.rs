//! The states of one layer.

use std::ops::Range;

use super::shape::{Sizes, StateShape};
use crate::disjoint::Disjoint;

/// The states of one layer in all slots. Tasks read and write them.
pub(crate) struct LayerStates<'a> {
    pub(super) shape: StateShape,
    pub(super) sizes: Sizes,
    pub(super) layer: usize,
    pub(super) memory: Disjoint<'a, f32>,
}

impl<'a> LayerStates<'a> {
    fn start(&self, slot: u32) -> usize {
        (slot as usize * self.shape.layers + self.layer) * self.sizes.layer
    }

    fn row_start(&self, slot: u32, row: usize, channels: &Range<usize>) -> usize {
        self.start(slot) + row * self.sizes.channels + channels.start
    }

    fn panel_start(&self, slot: u32, head: usize, panel: usize) -> usize {
        self.start(slot) + self.sizes.rows + (head * self.shape.panels() + panel) * self.sizes.panel
    }

    /// Returns channels of a stored row.
    ///
    /// # Safety
    /// While the returned slice is alive, no task writes these channels of the row.
    #[inline(always)]
    pub(crate) unsafe fn row(&self, slot: u32, row: usize, channels: &Range<usize>) -> &'a [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.memory.read(self.row_start(slot, row, channels), channels.len()) }
    }

    /// Returns channels of a stored row for writing.
    ///
    /// # Safety
    /// While the returned slice is alive, nothing else reads or writes these channels of the row.
    #[inline(always)]
    pub(crate) unsafe fn row_mut(&self, slot: u32, row: usize, channels: &Range<usize>) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.memory.slice(self.row_start(slot, row, channels), channels.len()) }
    }

    /// Returns `count` panels of a recurrent state: \[count\]\[Dk\]\[16\].
    ///
    /// # Safety
    /// While the returned slice is alive, no task writes the panels.
    pub(crate) unsafe fn panels(&self, slot: u32, head: usize, first: usize, count: usize) -> &'a [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.memory.read(self.panel_start(slot, head, first), count * self.sizes.panel) }
    }

    /// Returns `count` panels of a recurrent state for writing.
    ///
    /// # Safety
    /// While the returned slice is alive, nothing else reads or writes the panels.
    pub(crate) unsafe fn panels_mut(&self, slot: u32, head: usize, first: usize, count: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.memory.slice(self.panel_start(slot, head, first), count * self.sizes.panel) }
    }
}
