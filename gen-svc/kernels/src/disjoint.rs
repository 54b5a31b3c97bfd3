//! A slice that several tasks write, each task its own part.

use std::marker::PhantomData;

/// A borrowed slice whose parts are lent to tasks. The caller of [`slice`](Self::slice) guarantees
/// that parts do not overlap.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: `slice` requires disjoint parts, so threads share the elements as with `split_at_mut`.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    /// Returns the `length` elements from `start`.
    ///
    /// # Safety
    /// While the returned slice is alive, no other call may request a range that overlaps with it.
    ///
    /// # Panics
    /// Panics if the range exceeds the slice.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, start: usize, length: usize) -> &'a mut [T] {
        assert!(start <= self.length && length <= self.length - start, "range exceeds the slice");
        // SAFETY: the range is within the slice, which is borrowed for 'a, and overlaps no other
        // part.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), length) }
    }

    /// Returns the `length` elements from `start`, which other tasks may read at the same time.
    ///
    /// # Safety
    /// While the returned slice is alive, no call of [`slice`](Self::slice) may request a range that
    /// overlaps with it.
    ///
    /// # Panics
    /// Panics if the range exceeds the slice.
    pub(crate) unsafe fn read(&self, start: usize, length: usize) -> &'a [T] {
        assert!(start <= self.length && length <= self.length - start, "range exceeds the slice");
        // SAFETY: the range is within the slice, which is borrowed for 'a, and nothing writes it.
        unsafe { std::slice::from_raw_parts(self.start.add(start), length) }
    }
}
