//! Memory for weights and caches: zeroed, aligned to cache lines, and refused rather than fatal when there is none.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::error::Error;

/// The length of a cache line, in bytes.
const CACHE_LINE_BYTES: usize = 64;

/// Types for which every pattern of bits is a value, so that zeroed memory and any bytes can be read as them.
///
/// # Safety
/// Implementors have no padding, no invalid patterns, and an alignment of at most [`CACHE_LINE_BYTES`].
pub(crate) unsafe trait Plain: Copy + Send + Sync {}
// SAFETY: integers and floats are as the trait demands.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}

/// An owned run of bytes. Pages that were never written take no memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// In the allocation, on a line.
    start: NonNull<u8>,
    bytes: usize,
    allocated: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory alone and gives it out only by the usual rules of borrowing.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn zeroed(bytes: usize) -> Result<Self, Error> {
        let bytes = bytes.max(CACHE_LINE_BYTES);
        // A line more, to find one in it: allocators write zeros into every page where they are asked for such an alignment.
        let size = bytes.checked_add(CACHE_LINE_BYTES).ok_or(Error::Memory { bytes: None })?;
        let layout = Layout::from_size_align(size, 1).map_err(|_| Error::Memory { bytes: None })?;
        // SAFETY: the size is not zero.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Error::Memory { bytes: Some(bytes) })?;
        // SAFETY: the next line starts fewer than CACHE_LINE_BYTES bytes from here, and the allocation is so much larger than `bytes`.
        let start = unsafe { allocated.add(allocated.align_offset(CACHE_LINE_BYTES)) };
        Ok(Self { start, bytes, allocated, layout })
    }

    pub(crate) fn as_slice<T: Plain>(&self) -> &[T] {
        // SAFETY: the memory is initialized, aligned for T, lives as long as `self`, and is valid T whatever it holds.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes / size_of::<T>()) }
    }

    pub(crate) fn as_mut_slice<T: Plain>(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`; `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes / size_of::<T>()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) }
    }
}
