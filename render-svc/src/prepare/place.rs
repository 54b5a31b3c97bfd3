//! The places in the request from which the values of a rewritten conversation come.

use tandem_common::field::{Path, Step, Steps};

/// The place in the request of a value, and of the values inside it.
///
/// A value inside has the same path inside its place, such as `.content[0]`, unless it has a
/// separate place. Each step of the rewriting moves the places together with the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    path: Path,
    /// True if the request has no value at the paths inside. They then lead to the place itself.
    is_made: bool,
    /// Values of an object that have separate places, by key.
    keys: Vec<(String, Place)>,
    /// Items of a list that have separate places. None has one if this is empty.
    items: Vec<Place>,
    /// Further values that were merged into it.
    merged: Vec<Merged>,
}

/// A value that was merged into another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Merged {
    /// Its path in the request.
    path: Path,
    /// The byte at which it starts in a text.
    start: usize,
}

impl Place {
    /// Returns the place at `path` in the request, such as `messages[1]`.
    #[must_use]
    pub fn at(path: impl Into<Path>) -> Self {
        Self { path: path.into(), is_made: false, keys: Vec::new(), items: Vec::new(), merged: Vec::new() }
    }

    /// Returns the place of a value that was made from another one: a block from a text, or a
    /// message from a block. Paths inside lead to the value that it was made from.
    #[must_use]
    pub fn made_from(path: impl Into<Path>) -> Self {
        Self { is_made: true, ..Self::at(path) }
    }

    /// Returns the place of a list that starts at this place and has these items.
    #[must_use]
    pub fn with_items(self, items: Vec<Self>) -> Self {
        Self { keys: Vec::new(), items, ..self }
    }

    /// Returns this place with another place for a key.
    #[must_use]
    pub fn with(mut self, key: &str, place: Self) -> Self {
        self.set(key, place);
        self
    }

    /// Sets the place of a key.
    pub fn set(&mut self, key: &str, place: Self) {
        match self.keys.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = place,
            None => self.keys.push((key.to_owned(), place)),
        }
    }

    /// Adds the place of a value that is merged into this one. In a text, it starts at this byte.
    pub fn add_merged(&mut self, place: Self, start: usize) {
        self.merged.push(Merged { path: place.path, start });
        self.merged.extend(place.merged.into_iter().map(|merged| Merged { start: merged.start + start, ..merged }));
    }

    /// Returns the place of a text that consists of this one and the next one, which starts at this byte.
    #[must_use]
    pub fn joined(mut self, next: Self, start: usize) -> Self {
        self.add_merged(next, start);
        self
    }

    /// Returns the place of a text with more bytes before this one.
    #[must_use]
    pub fn after(mut self, bytes: usize) -> Self {
        self.merged.iter_mut().for_each(|merged| merged.start += bytes);
        self
    }

    /// Returns the place of a value that was made from the text at this place.
    #[must_use]
    pub fn into_made(self) -> Self {
        Self { is_made: true, keys: Vec::new(), items: Vec::new(), ..self }
    }

    /// Returns the paths in the request of further values that were merged into the one at a path
    /// inside this one.
    #[must_use]
    pub fn merged_into(&self, inside: &Steps<'_>) -> Vec<&Path> {
        match self.own(inside) {
            Some((place, rest)) => place.merged_into(rest),
            None if inside.is_empty() => {
                let items = self.items.iter().map(Self::path).filter(|path| !path.starts_with(&self.path));
                self.merged.iter().map(|merged| &merged.path).chain(items).collect()
            }
            None => Vec::new(),
        }
    }

    /// Returns the path in the request of this byte of the text at a path inside this one.
    #[must_use]
    pub fn path_of_byte(&self, inside: &Steps<'_>, byte: usize) -> Path {
        match self.own(inside) {
            Some((place, rest)) => place.path_of_byte(rest, byte),
            None => {
                let merged = self.merged.iter().rfind(|merged| inside.is_empty() && merged.start <= byte);
                merged.map_or_else(|| self.path_of(inside), |merged| merged.path.clone())
            }
        }
    }

    /// Removes and returns the place of a key.
    pub fn take(&mut self, key: &str) -> Self {
        match self.keys.iter().position(|(known, _)| known == key) {
            Some(i) => self.keys.swap_remove(i).1,
            None => self.inside(&[Step::Key(key)]),
        }
    }

    /// Returns the path of an item of a list that has a separate place.
    #[must_use]
    pub fn item_path(&self, index: usize) -> Option<&Path> {
        self.items.get(index).map(Self::path)
    }

    /// Returns the places of the items of a list with this length.
    #[must_use]
    pub fn into_items(mut self, length: usize) -> Vec<Self> {
        let mut items = std::mem::take(&mut self.items);
        items.extend((items.len()..length).map(|i| self.inside(&[Step::Index(i)])));
        items
    }

    /// Returns the path in the request of the place itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the index in the request of the message that it is or belongs to, if any.
    #[must_use]
    pub fn message(&self) -> Option<usize> {
        match self.path.steps()[..] {
            [Step::Key("messages"), Step::Index(index), ..] => Some(index),
            _ => None,
        }
    }

    /// Returns the path in the request of the value to which steps lead from this one, such as
    /// `content[0].text`.
    #[must_use]
    pub fn path_of(&self, inside: &Steps<'_>) -> Path {
        match self.own(inside) {
            Some((place, rest)) => place.path_of(rest),
            None => self.inside(inside).path,
        }
    }

    /// Returns the place of a value inside that has no separate place.
    fn inside(&self, steps: &Steps<'_>) -> Self {
        if self.is_made { Self::made_from(self.path.clone()) } else { Self::at(self.path.join(steps)) }
    }

    /// Returns the separate place to which the first step leads, if any, and the steps after it.
    fn own<'s, 'k>(&self, steps: &'s Steps<'k>) -> Option<(&Self, &'s Steps<'k>)> {
        let (first, rest) = steps.split_first()?;
        let place = match first {
            Step::Key(key) => self.keys.iter().find(|(known, _)| known == key).map(|(_, place)| place),
            Step::Index(index) => self.items.get(*index),
        };
        Some((place?, rest))
    }
}
