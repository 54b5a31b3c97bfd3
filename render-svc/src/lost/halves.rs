//! The search, by halves, for parts that do not change a prompt.

/// What becomes of parts of which no rendering says whether they change the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// They count as parts that do not.
    Kept,
    /// They count as parts that do.
    Dropped,
}

/// Returns the parts that do not change the prompt: all, or those of the halves. `is_same` returns None if it
/// cannot say.
pub(super) fn unaffected<T: Clone>(
    parts: &[T],
    doubt: Doubt,
    is_same: &mut impl FnMut(&[T]) -> Option<bool>,
) -> Vec<T> {
    if parts.is_empty() {
        return Vec::new();
    }
    match is_same(parts) {
        Some(true) => parts.to_vec(),
        None if doubt == Doubt::Kept => parts.to_vec(),
        Some(false) if parts.len() > 1 => {
            let (first, second) = parts.split_at(parts.len() / 2);
            [unaffected(first, doubt, is_same), unaffected(second, doubt, is_same)].concat()
        }
        _ => Vec::new(),
    }
}
