//! The limits of a header. Real headers have at most half of each: the largest known have 262,144
//! tokens, 514,906 merges, 25 MB and some thousand tensors. A file may be sparse, so its size does
//! not bound its counts.

/// The most bytes of a header.
pub(super) const MAX_HEADER_BYTES: u64 = 256 << 20;
/// The most metadata entries.
pub(super) const MAX_ENTRIES: u64 = 1 << 16;
/// The most tensors.
pub(super) const MAX_TENSORS: u64 = 1 << 16;
/// The most strings in an array, and arrays in an array.
pub(super) const MAX_STRINGS: u64 = 1 << 20;
/// The most elements of all arrays together.
pub(super) const MAX_ELEMENTS: u64 = 1 << 22;
/// The most bytes of a string.
pub(super) const MAX_TEXT_BYTES: u64 = 8 << 20;
/// The most bytes of all strings in arrays together.
pub(super) const MAX_ARRAY_TEXT_BYTES: u64 = 64 << 20;
