//! Zeroed, cache-line-aligned memory for weights and caches. A failed allocation is an error and
//! does not abort the process.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::Error;

/// Bytes of a cache line.
pub(crate) const CACHE_LINE_BYTES: usize = 64;

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

/// Bytes. The system commits a page only when it is first written.
#[derive(Debug)]
pub(crate) struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
    /// The allocation that contains the bytes.
    _memory: Arc<Allocation>,
}

// SAFETY: the buffer is the only owner of its bytes and lends them by the borrow rules.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates memory for this buffer alone, in large pages if the system has such.
    pub(crate) fn zeroed(bytes: usize) -> Result<Self, Error> {
        let bytes = bytes.max(CACHE_LINE_BYTES);
        let memory = Arc::new(Allocation::in_large_pages(bytes)?);
        Ok(Self { start: memory.start, bytes, _memory: memory })
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

/// Allocated, zeroed memory.
#[derive(Debug)]
struct Allocation {
    /// The first aligned byte of the allocation.
    start: NonNull<u8>,
    allocated: NonNull<u8>,
    layout: Layout,
}

// SAFETY: only buffers read and write the memory, each its own part.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    fn in_large_pages(bytes: usize) -> Result<Self, Error> {
        if bytes < LARGE_PAGE_BYTES {
            return Self::zeroed(bytes, CACHE_LINE_BYTES);
        }
        let memory = Self::zeroed(bytes, LARGE_PAGE_BYTES)?;
        use_large_pages(&memory, bytes);
        Ok(memory)
    }

    fn zeroed(bytes: usize, align: usize) -> Result<Self, Error> {
        // More bytes for the alignment. An aligned zeroed allocation would make some allocators write every page.
        let size = bytes.checked_add(align).ok_or(Error::Memory { bytes: None })?;
        let layout = Layout::from_size_align(size, 1).map_err(|_| Error::Memory { bytes: None })?;
        // SAFETY: the size is not zero, since no alignment is.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Error::Memory { bytes: Some(bytes) })?;
        // SAFETY: the aligned byte is less than `align` from the start, and the allocation is that much longer than
        // `bytes`.
        let start = unsafe { allocated.add(allocated.align_offset(align)) };
        Ok(Self { start, allocated, layout })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `zeroed` allocated the memory with this layout.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) }
    }
}

/// Bytes of a large page.
const LARGE_PAGE_BYTES: usize = 2 << 20;
/// The least bytes of an allocation that many buffers share. Its unused end takes no memory.
const SHARED_BYTES: usize = 128 << 20;

/// Allocates buffers next to each other in large pages, if the system has such. Weights are read once
/// per step, and the TLB has entries for few pages.
#[derive(Debug, Default)]
pub(crate) struct LargePages {
    memory: Option<Arc<Allocation>>,
    /// The bytes of `memory` that buffers have, and all of its bytes.
    used: usize,
    bytes: usize,
}

impl LargePages {
    pub(crate) fn zeroed(&mut self, bytes: usize) -> Result<Buffer, Error> {
        let rounded = bytes.max(CACHE_LINE_BYTES).checked_next_multiple_of(CACHE_LINE_BYTES);
        let bytes = rounded.ok_or(Error::Memory { bytes: None })?;
        let memory = match &self.memory {
            Some(memory) if self.bytes - self.used >= bytes => Arc::clone(memory),
            _ => self.allocate(bytes)?,
        };
        // SAFETY: the memory has that many bytes.
        let start = unsafe { memory.start.add(self.used) };
        self.used += bytes;
        Ok(Buffer { start, bytes, _memory: memory })
    }

    fn allocate(&mut self, bytes: usize) -> Result<Arc<Allocation>, Error> {
        let bytes = bytes.max(SHARED_BYTES);
        let memory = Arc::new(Allocation::in_large_pages(bytes)?);
        *self = Self { memory: Some(Arc::clone(&memory)), used: 0, bytes };
        Ok(memory)
    }
}

/// Asks the system for large pages. Without them, the memory has small ones.
#[cfg(target_os = "linux")]
fn use_large_pages(memory: &Allocation, bytes: usize) {
    use std::ffi::{c_int, c_void};
    unsafe extern "C" {
        fn madvise(start: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    /// `MADV_HUGEPAGE` of madvise(2).
    const LARGE_PAGES: c_int = 14;
    // SAFETY: the advice changes no content, and the memory has that many bytes.
    unsafe { madvise(memory.start.as_ptr().cast(), bytes, LARGE_PAGES) };
}

#[cfg(not(target_os = "linux"))]
fn use_large_pages(_memory: &Allocation, _bytes: usize) {}
