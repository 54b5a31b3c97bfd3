//! Zeroed, cache-line-aligned memory for weights and caches. A failed allocation is an error and
//! does not abort the process.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::error::Error;

/// Bytes of a cache line.
const CACHE_LINE_BYTES: usize = 64;

/// Types for which every bit pattern is valid, so that zeroed memory and arbitrary bytes can be
/// read as values.
///
/// # Safety
/// Implementors have no padding, no invalid bit patterns, and an alignment of at most
/// [`CACHE_LINE_BYTES`].
pub(crate) unsafe trait Plain: Copy + Send + Sync {}
// SAFETY: integers and floats satisfy the trait's conditions.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for [u16; 2] {}

/// Owned bytes. The system commits a page only when it is first written.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// The first cache line boundary within the allocation.
    start: NonNull<u8>,
    bytes: usize,
    allocated: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer is the only owner of its memory and lends it by the borrow rules.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn zeroed(bytes: usize) -> Result<Self, Error> {
        let bytes = bytes.max(CACHE_LINE_BYTES);
        // One additional cache line for the alignment. An aligned zeroed allocation would make some
        // allocators write every page.
        let size = bytes.checked_add(CACHE_LINE_BYTES).ok_or(Error::Memory { bytes: None })?;
        let layout = Layout::from_size_align(size, 1).map_err(|_| Error::Memory { bytes: None })?;
        // SAFETY: the size is not zero.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Error::Memory { bytes: Some(bytes) })?;
        // SAFETY: the boundary is less than CACHE_LINE_BYTES from the start, and the allocation is
        // that much longer than `bytes`.
        let start = unsafe { allocated.add(allocated.align_offset(CACHE_LINE_BYTES)) };
        Ok(Self { start, bytes, allocated, layout })
    }

    pub(crate) fn as_slice<T: Plain>(&self) -> &[T] {
        // SAFETY: the memory is initialized, aligned for T, lives as long as `self`, and every bit
        // pattern is a valid T.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes / size_of::<T>()) }
    }

    pub(crate) fn as_mut_slice<T: Plain>(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes / size_of::<T>()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `zeroed` allocated the memory with this layout.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) }
    }
}
