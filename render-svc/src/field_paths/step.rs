//! The steps of a JSON path such as `messages[2].content[0].text`.

/// The first step of a path, and the path after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step<'p> {
    /// The key; empty at the end of the path.
    pub(super) key: &'p str,
    /// The index behind the key.
    pub(super) index: Option<usize>,
    /// The path after key and index.
    pub(super) rest: &'p str,
    after_key: &'p str,
}

impl<'p> Step<'p> {
    /// Returns the first step of a path. A dot before it is skipped.
    pub(super) fn of(path: &'p str) -> Self {
        let path = path.strip_prefix('.').unwrap_or(path);
        let (key, after_key) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
        let indexed = || {
            let (index, rest) = after_key.strip_prefix('[')?.split_once(']')?;
            Some((index.parse().ok()?, rest))
        };
        let (index, rest) = indexed().map_or((None, after_key), |(index, rest)| (Some(index), rest));
        Self { key, index, rest, after_key }
    }

    /// Returns the next step if this one has the key `key`, else this one.
    pub(super) fn skip(self, key: &str) -> Self {
        if self.key == key { Self::of(self.after_key) } else { self }
    }

    /// Returns the path after the key.
    pub(super) fn after_key(&self) -> &'p str {
        self.after_key
    }
}
