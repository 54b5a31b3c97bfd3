//! Which part of an output is reasoning, by the ids of the tokens that enclose it.

/// Ids that enclose reasoning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Markers {
    /// It starts at any of these.
    pub start: Vec<u32>,
    /// It ends at any of these, none of which is a start.
    pub end: Vec<u32>,
}

/// What a token does to the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Reasoning starts with it.
    Starts,
    /// Reasoning ends after it.
    Ends,
}

/// Whether the output is reasoning now.
#[derive(Debug, Clone)]
pub struct Reasoning {
    markers: Markers,
    inside: bool,
}

impl Reasoning {
    /// After a prompt: inside if a start is the last marker that follows the last control token.
    pub fn after(prompt: &[u32], markers: &Markers, is_control: impl Fn(u32) -> bool) -> Self {
        let is_start = |id: u32| markers.start.contains(&id);
        let is_marker = |id: u32| is_start(id) || markers.end.contains(&id);
        let last = prompt.iter().rev().copied().find(|&id| is_marker(id) || is_control(id));
        Self { markers: markers.clone(), inside: last.is_some_and(is_start) }
    }

    /// Whether what comes now is reasoning.
    pub fn is_inside(&self) -> bool {
        self.inside
    }

    /// What a token changes, if anything.
    pub fn change(&self, id: u32) -> Option<Change> {
        let (change, at) = match self.inside {
            true => (Change::Ends, &self.markers.end),
            false => (Change::Starts, &self.markers.start),
        };
        at.contains(&id).then_some(change)
    }

    /// Makes a change.
    pub fn apply(&mut self, change: Change) {
        self.inside = change == Change::Starts;
    }
}
