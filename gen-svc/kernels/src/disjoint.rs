//! A slice that several tasks write, each its own part.

use std::marker::PhantomData;

/// A borrowed slice whose parts are lent to tasks. Who asks for a part promises that nobody else has it.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are lent under the promise of `slice`, as `&mut [T]` would be split among threads.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    /// The `length` elements from `start`.
    ///
    /// # Safety
    /// Until the returned slice is dropped, no other call may be given a range that overlaps with it.
    ///
    /// # Panics
    /// When the range is not within the slice.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, start: usize, length: usize) -> &'a mut [T] {
        assert!(start <= self.length && length <= self.length - start, "a part lies within its slice");
        // SAFETY: within the slice, which is borrowed for 'a, and overlapping with no other part.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), length) }
    }
}
