//! Finds the reasoning in an output by the markers that enclose it.

use std::sync::Arc;

use super::strings::{Search, StringSet};

/// The tokens of a prompt that are searched for markers that are text.
const MAX_SEARCHED_TOKENS: usize = 4096;

/// The markers that enclose reasoning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Markers {
    /// It starts at any of these.
    pub start: MarkerSet,
    /// It ends at any of these, none of which is a start.
    pub end: MarkerSet,
}

/// Markers of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MarkerSet {
    /// Markers that are one token.
    pub token_ids: Vec<u32>,
    /// Markers that are text, of any tokens.
    pub strings: Vec<String>,
}

/// The effect of a marker on the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Reasoning starts with it.
    Starts,
    /// Reasoning ends after it.
    Ends,
}

/// The state of an output: reasoning or not.
#[derive(Debug, Clone)]
pub struct Reasoning {
    start: Awaited,
    end: Awaited,
    inside: bool,
}

/// The markers that make one change.
#[derive(Debug, Clone)]
struct Awaited {
    token_ids: Vec<u32>,
    strings: Arc<StringSet>,
}

impl Awaited {
    fn new(markers: &MarkerSet) -> Self {
        let MarkerSet { token_ids, strings } = markers;
        Self { token_ids: token_ids.clone(), strings: Arc::new(StringSet::new(strings)) }
    }
}

impl Reasoning {
    /// Returns the state after a prompt, and the search for the next marker that is text, which the
    /// prompt's last bytes may have begun.
    ///
    /// Only the tokens after the last control token that is no marker are read, as if the output
    /// began with them. Markers that are text are found in the last 4,096 of these only. `text_of`
    /// gives the bytes of a token that are text.
    pub fn after<'t>(
        prompt: &[u32],
        markers: &Markers,
        is_control: impl Fn(u32) -> bool,
        text_of: impl Fn(u32) -> &'t [u8],
    ) -> (Self, Search) {
        let (start, end) = (Awaited::new(&markers.start), Awaited::new(&markers.end));
        let mut state = Self { start, end, inside: false };
        let turn = prompt.rsplit(|&id| is_control(id) && !state.is_marker(id)).next().unwrap_or_default();
        let (before, last) = turn.split_at(turn.len().saturating_sub(state.look_back()));
        let marker = before.iter().rev().find(|&&id| state.is_marker(id));
        state.inside = marker.is_some_and(|id| state.start.token_ids.contains(id));
        let search = state.read(last, text_of);
        (state, search)
    }

    /// Returns true if the next text is reasoning.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.inside
    }

    /// Returns the change that the next marker makes.
    #[must_use]
    pub fn next_change(&self) -> Change {
        if self.inside { Change::Ends } else { Change::Starts }
    }

    /// Returns the markers that make the next change, as far as they are text.
    #[must_use]
    pub fn awaited_strings(&self) -> &Arc<StringSet> {
        &self.awaited().strings
    }

    /// Returns true if a token is a marker that makes this change now.
    #[must_use]
    pub fn makes(&self, change: Change, id: u32) -> bool {
        self.next_change() == change && self.awaited().token_ids.contains(&id)
    }

    /// Makes a change.
    pub fn apply(&mut self, change: Change) {
        self.inside = change == Change::Starts;
    }

    fn awaited(&self) -> &Awaited {
        if self.inside { &self.end } else { &self.start }
    }

    fn is_marker(&self, id: u32) -> bool {
        self.start.token_ids.contains(&id) || self.end.token_ids.contains(&id)
    }

    fn look_back(&self) -> usize {
        if self.start.strings.is_empty() && self.end.strings.is_empty() { 0 } else { MAX_SEARCHED_TOKENS }
    }

    /// Reads tokens of a prompt. The search is where their last bytes left it.
    fn read<'t>(&mut self, ids: &[u32], text_of: impl Fn(u32) -> &'t [u8]) -> Search {
        let mut search = Search::new(self.awaited_strings());
        for &id in ids {
            if self.makes(Change::Starts, id) {
                search = self.pass(Change::Starts);
            }
            for &byte in text_of(id) {
                if search.push(byte).is_some() {
                    search = self.pass(self.next_change());
                }
            }
            if self.makes(Change::Ends, id) {
                search = self.pass(Change::Ends);
            }
        }
        search
    }

    /// Applies a change, and restarts the search.
    fn pass(&mut self, change: Change) -> Search {
        self.apply(change);
        Search::new(self.awaited_strings())
    }
}
