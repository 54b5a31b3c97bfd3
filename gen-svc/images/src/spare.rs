//! Buffers of pixels that are kept for the next image. The system clears the pages of a new buffer at
//! their first use, which takes as long as a resize.
//!
//! The next image may be another caller's. So [`Buffer::zeroed`] is the only way to a kept buffer, and
//! it clears the buffer: a decoder that leaves a gap leaves zeros.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// The most bytes of all kept buffers.
const MAX_BYTES: usize = 32 << 20;

/// The bytes below which a buffer is not kept: the allocator keeps such pages itself.
const SMALL_BYTES: usize = 64 << 10;

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A buffer that is kept when it is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// Returns a buffer of this length, whose bytes are zero.
    pub(crate) fn zeroed(length: usize) -> Self {
        let Some(mut bytes) = find(length) else { return Self(vec![0; length]) };
        bytes.clear();
        bytes.resize(length, 0);
        Self(bytes)
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        give(mem::take(&mut self.0));
    }
}

/// Removes the smallest kept buffer that is large enough.
fn find(length: usize) -> Option<Vec<u8>> {
    if length < SMALL_BYTES {
        return None;
    }
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let fitting = kept.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= length);
    let (index, _) = fitting.min_by_key(|(_, buffer)| buffer.capacity())?;
    Some(kept.swap_remove(index))
}

/// Keeps a buffer. The largest ones are dropped once all have too many bytes.
fn give(buffer: Vec<u8>) {
    if !(SMALL_BYTES..=MAX_BYTES).contains(&buffer.capacity()) {
        return;
    }
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.push(buffer);
    kept.sort_by_key(Vec::capacity);
    let mut bytes = 0;
    let fits = |buffer: &&Vec<u8>| {
        bytes += buffer.capacity();
        bytes <= MAX_BYTES
    };
    let fitting = kept.iter().take_while(fits).count();
    let dropped = kept.split_off(fitting);
    drop(kept);
    // Not while others wait for the list.
    drop(dropped);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_bytes_are_bounded() {
        let buffers = [MAX_BYTES / 4; 8].map(Buffer::zeroed);
        drop(buffers);
        drop(Buffer::zeroed(MAX_BYTES + 1));
        let kept = KEPT.lock().expect("a list").iter().map(Vec::capacity).sum::<usize>();
        assert!(kept <= MAX_BYTES);
    }

    #[test]
    fn a_kept_buffer_is_cleared() {
        for length in [SMALL_BYTES, SMALL_BYTES + 1, 2 * SMALL_BYTES] {
            drop([1, 2, 3].map(|part| Buffer(vec![0xEE; 3 * SMALL_BYTES / part])));
            assert!(Buffer::zeroed(length).iter().all(|byte| *byte == 0), "{length} bytes");
        }
    }

    #[test]
    fn a_buffer_has_the_length_that_is_asked_for() {
        drop(Buffer::zeroed(3 * SMALL_BYTES));
        for length in [0, 1, SMALL_BYTES, 2 * SMALL_BYTES, 5 * SMALL_BYTES] {
            assert_eq!(Buffer::zeroed(length).len(), length);
        }
    }
}
