//! Watches for the anchors that can come next.

use super::buffer::Buffer;
use super::pattern::{Barren, Edge, Found, Scratch, Search, Tail};
use super::template::{Anchor, Template};

/// The searches for all anchors of a template.
#[derive(Debug)]
pub(super) struct Watch {
    searches: Vec<Watched>,
    scratch: Scratch,
}

/// The search for one anchor.
#[derive(Debug)]
struct Watched {
    search: Search,
    /// The result of the search in the text up to a place, where the answer ends or not.
    known: Option<(usize, bool, Edge)>,
    /// Where the search led nowhere, for a text up to a place, where the answer ends or not.
    barren: (usize, bool, Barren),
}

/// The certain part of an anchor's next match.
enum View<'w> {
    Match(&'w Found),
    /// The match cannot begin before this place, if there is one.
    From(Option<usize>),
}

/// The next anchor by its index, and its match.
type Best = Option<(usize, Found)>;

impl Watch {
    pub(super) fn new(template: &Template) -> Self {
        let watched =
            |_: &Anchor| Watched { search: Search::new(0, None), known: None, barren: (0, false, Barren::default()) };
        Self { searches: template.anchors.iter().map(watched).collect(), scratch: Scratch::default() }
    }

    /// Returns the next anchor that is certain, and the place up to which the text before it is.
    pub(super) fn scan(
        &mut self,
        template: &Template,
        watched: &[usize],
        buffer: &Buffer,
        is_end: bool,
    ) -> (Best, usize) {
        for index in watched {
            if let Some(watched) = self.searches.get_mut(*index) {
                watched.prepare(buffer, is_end);
            }
        }
        if let Some(best) = self.advance(template, watched, buffer, is_end) {
            let hold = best.1.start;
            return (Some(best), hold);
        }
        self.edge(template, watched, buffer, is_end)
    }

    /// Advances the searches together, until the next anchor is certain or the text ends.
    fn advance(&mut self, template: &Template, watched: &[usize], buffer: &Buffer, is_end: bool) -> Best {
        let end = buffer.end();
        let tail = ends_in_newline(buffer);
        let mut active: Vec<usize> = Vec::with_capacity(watched.len());
        let mut at = end;
        let mut has_match = false;
        for index in watched {
            let Some(watched) = self.searches.get(*index) else { continue };
            if watched.is_open() {
                active.push(*index);
                at = at.min(watched.search.at());
            } else {
                has_match = true;
            }
        }
        if has_match && let Some(best) = self.certain(template, watched, end, is_end) {
            return Some(best);
        }
        for c in buffer.text(at, end).chars() {
            let next = at + c.len_utf8();
            let mut has_settled = false;
            for index in &active {
                let (Some(watched), Some(anchor)) = (self.searches.get_mut(*index), template.anchors.get(*index))
                else {
                    continue;
                };
                let waits = tail && next == end && anchor.pattern.sees_last_line();
                if watched.search.at() == at && !waits {
                    watched.search.take(&anchor.pattern, c, &mut self.scratch);
                    has_settled |= watched.is_decided(end, is_end);
                }
            }
            at = next;
            if has_settled {
                has_match = true;
                let searches = &self.searches;
                active.retain(|index| searches.get(*index).is_some_and(Watched::is_open));
            }
            if has_match && let Some(best) = self.certain(template, watched, end, is_end) {
                return Some(best);
            }
            if active.is_empty() {
                break;
            }
        }
        None
    }

    /// Returns the next anchor if no other one can come before it, however the text up to the end continues.
    fn certain(&self, template: &Template, watched: &[usize], end: usize, is_end: bool) -> Best {
        let mut best: Option<(usize, &Found)> = None;
        for index in watched {
            let (Some(watched), Some(anchor)) = (self.searches.get(*index), template.anchors.get(*index)) else {
                continue;
            };
            if let View::Match(found) = watched.view(anchor, end, is_end)
                && found.start < end
                && best.is_none_or(|best| precedes(template, (*index, found), best))
            {
                best = Some((*index, found));
            }
        }
        let (index, found) = best?;
        let cannot_precede = |index: &usize| {
            let (Some(watched), Some(anchor)) = (self.searches.get(*index), template.anchors.get(*index)) else {
                return true;
            };
            match watched.view(anchor, end, is_end) {
                View::Match(_) | View::From(None) => true,
                View::From(Some(from)) => from > found.start,
            }
        };
        watched.iter().all(cannot_precede).then(|| (index, found.clone()))
    }

    /// Returns the next anchor at the end of the text so far.
    fn edge(&mut self, template: &Template, watched: &[usize], buffer: &Buffer, is_end: bool) -> (Best, usize) {
        let end = buffer.end();
        let tail = Tail { newline: ends_in_newline(buffer) };
        let (mut best, mut hold): (Best, usize) = (None, end);
        for index in watched {
            let (Some(watched), Some(anchor)) = (self.searches.get_mut(*index), template.anchors.get(*index)) else {
                continue;
            };
            watched.find_edge(anchor, end, is_end, tail, &mut self.scratch);
            let Some((_, _, edge)) = &watched.known else { continue };
            match edge {
                Edge::Partial(start) if !is_end => hold = hold.min(*start),
                Edge::Complete(found) => {
                    if let Some(from) = watched.grows_from(anchor, found, end).filter(|_| !is_end) {
                        hold = hold.min(from);
                    } else if best.as_ref().is_none_or(|best| precedes(template, (*index, found), (best.0, &best.1))) {
                        best = Some((*index, found.clone()));
                    }
                }
                Edge::Partial(_) | Edge::None => {}
            }
        }
        (best.filter(|(_, found)| found.start < hold), hold)
    }
}

impl Watched {
    /// Makes the search one from the start of the buffer on. Results for the text stay.
    fn prepare(&mut self, buffer: &Buffer, is_end: bool) {
        let start = buffer.start();
        let is_known = |known: &(usize, bool, Edge)| {
            known.0 == buffer.end()
                && known.1 == is_end
                && match &known.2 {
                    Edge::Complete(found) => found.start >= start,
                    Edge::Partial(from) => *from >= start,
                    Edge::None => true,
                }
        };
        if self.known.as_ref().is_some_and(is_known) {
            return;
        }
        let known = self.known.take().filter(|known| (known.0, known.1) == (buffer.end(), is_end));
        if (self.barren.0, self.barren.1) != (buffer.end(), is_end) {
            self.barren.0 = buffer.end();
            self.barren.1 = is_end;
            self.barren.2.clear();
        }
        if let Some((_, _, Edge::Complete(found))) = known {
            self.search.give_up(&found, &mut self.barren.2);
        }
        if self.search.at() < start || self.search.earliest().is_some_and(|earliest| earliest < start) {
            self.search.restart(start, buffer.before(start));
        }
    }

    /// Returns true if the rest of the text up to the end cannot change the result.
    fn is_decided(&mut self, end: usize, is_end: bool) -> bool {
        if let Some(found) = self.search.best_at(&self.barren.2) {
            self.known = Some((end, is_end, Edge::Complete(found.clone())));
        }
        !self.is_open()
    }

    /// Returns true if more of the text can change the result.
    fn is_open(&self) -> bool {
        self.known.is_none() && !self.search.is_settled()
    }

    fn view(&self, anchor: &Anchor, end: usize, is_end: bool) -> View<'_> {
        let certain = |found| match self.grows_from(anchor, found, end).filter(|_| !is_end) {
            Some(from) => View::From(Some(from)),
            None => View::Match(found),
        };
        match &self.known {
            Some((_, _, Edge::None)) => View::From(None),
            Some((_, _, Edge::Partial(from))) => View::From((!is_end).then_some(*from)),
            Some((_, _, Edge::Complete(found))) => certain(found),
            None => match self.search.settled() {
                Some(found) => certain(found),
                None => View::From(Some(self.search.earliest().unwrap_or(self.search.at()))),
            },
        }
    }

    fn find_edge(&mut self, anchor: &Anchor, end: usize, is_end: bool, tail: Tail, scratch: &mut Scratch) {
        if self.known.is_none() {
            let edge = match self.search.edge(&anchor.pattern, tail, scratch) {
                // What can still become complete never does.
                Edge::Partial(_) if is_end => Edge::None,
                edge => edge,
            };
            self.known = Some((end, is_end, edge));
        }
    }

    /// Returns the place from which a match can change as more text follows. One at the end of the text can change,
    /// and an empty one depends on the end. The anchors of built-in rules also wait for optional parts and earlier
    /// matches that have begun, unlike the reference.
    fn grows_from(&self, anchor: &Anchor, found: &Found, end: usize) -> Option<usize> {
        let can_grow = match found.end == end {
            true => found.start == found.end || anchor.can_grow,
            false => anchor.waits && !self.search.is_settled(),
        };
        let earliest = self.search.earliest().filter(|_| anchor.waits);
        can_grow.then(|| earliest.map_or(found.start, |earliest| earliest.min(found.start)))
    }
}

fn ends_in_newline(buffer: &Buffer) -> bool {
    buffer.text(buffer.start(), buffer.end()).ends_with('\n')
}

/// Returns true if a match comes first: the earlier one, the longer one, an opening, the first name.
fn precedes(template: &Template, (one, found): (usize, &Found), (other, than): (usize, &Found)) -> bool {
    let key = |index: usize, found: &Found| {
        let anchor = template.anchors.get(index);
        let name = anchor.and_then(|anchor| template.fields.get(anchor.field)).map(|field| &*field.name);
        (found.start, usize::MAX - (found.end - found.start), !anchor.is_some_and(|anchor| anchor.opens), name)
    };
    key(one, found) < key(other, than)
}
