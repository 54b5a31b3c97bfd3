//! The state of an iteration over a value.

use minijinja::Value;

/// An iterator over a value, independent of the value's lifetime.
#[derive(Debug)]
pub(crate) struct Items {
    pub(super) value: Value,
    pub(super) at: usize,
    /// How many items a dict or a view of one had at the start: it may not grow on the way.
    pub(super) size: Option<usize>,
}
