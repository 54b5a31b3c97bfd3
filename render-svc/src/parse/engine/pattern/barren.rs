//! Remembers where a search for a better match leads nowhere, so that no text is searched for it again and again.
//!
//! A pattern such as `a(?:.*b)?` matches at once, but a better match can end anywhere further on. If none does, the
//! next search would go through the same text again. It stops instead where its threads are among the ones that
//! reached the end of the text without a match.

use std::collections::HashMap;

/// Places are marked once in this many bytes.
const DISTANCE: usize = 64;

/// A place, and the places of the program that the threads are at.
pub(super) type Mark = (usize, Vec<usize>);

/// The threads that lead to no match before the end of a text, at its marked places.
#[derive(Debug, Default)]
pub(crate) struct Barren {
    marks: HashMap<usize, Vec<usize>>,
}

/// Returns true if the place after a character is marked.
pub(super) fn is_marked(before: usize, after: usize) -> bool {
    before / DISTANCE != after / DISTANCE
}

impl Barren {
    /// Forgets all places, since the text has another end.
    pub(crate) fn clear(&mut self) {
        self.marks.clear();
    }

    pub(super) fn extend(&mut self, marks: impl IntoIterator<Item = Mark>) {
        for (place, steps) in marks {
            let known = self.marks.entry(place).or_default();
            known.extend(steps);
            known.sort_unstable();
            known.dedup();
        }
    }

    /// Returns true if all threads of a mark lead nowhere.
    pub(super) fn covers(&self, (place, steps): &Mark) -> bool {
        let known = self.marks.get(place);
        known.is_some_and(|known| steps.iter().all(|step| known.binary_search(step).is_ok()))
    }
}
