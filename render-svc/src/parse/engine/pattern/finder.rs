//! All matches of a pattern in a text, one after another.

use super::barren::Barren;
use super::compiled::Pattern;
use super::search::{Edge, Found, Scratch, Search, Tail};

/// Returns the matches of a pattern in a text, from left to right. An empty match does not begin where an empty one
/// ended.
pub(crate) fn find_all<'a>(pattern: &'a Pattern, text: &'a str) -> impl Iterator<Item = Found> + 'a {
    let (mut scratch, mut barren) = (Scratch::default(), Barren::default());
    let mut next = Some(Search::new(0, None));
    std::iter::from_fn(move || {
        let found = find(pattern, text, next.take()?, &mut scratch, &mut barren)?;
        let before = text.get(..found.end).and_then(|text| text.chars().next_back());
        let search = Search::new(found.end, before);
        next = Some(if found.start == found.end { search.advancing() } else { search });
        Some(found)
    })
}

fn find(
    pattern: &Pattern,
    text: &str,
    mut search: Search,
    scratch: &mut Scratch,
    barren: &mut Barren,
) -> Option<Found> {
    let newline = pattern.program.sees_last_line && text.ends_with('\n') && search.at() < text.len();
    let end = text.len() - usize::from(newline);
    for c in text.get(search.at()..end).unwrap_or_default().chars() {
        search.take(pattern, c, scratch);
        if let Some(found) = search.settled().or_else(|| search.best_at(barren)) {
            return Some(found.clone());
        }
    }
    match search.edge(pattern, Tail { newline }, scratch) {
        Edge::Complete(found) => {
            search.give_up(&found, barren);
            Some(found)
        }
        Edge::Partial(_) | Edge::None => None,
    }
}
