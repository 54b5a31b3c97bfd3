//! The state of an iteration over a value.

use minijinja::Value;

/// An iterator over a value, independent of the value's lifetime.
#[derive(Debug)]
pub(crate) struct Items {
    pub(super) value: Value,
    pub(super) at: usize,
    /// The number of items of a dict or view at the start, which may not change during iteration.
    pub(super) size: Option<usize>,
}
