//! The search for one pattern, character by character.

use super::barren::{Barren, Mark, is_marked};
use super::class::CharSet;
use super::compiled::Pattern;
use super::ghosts::Ghosts;
use super::program::{Program, Step};
use super::syntax::Assertion;

/// The value of a note that is not set.
const UNSET: usize = usize::MAX;

/// A match. Places are byte offsets in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The start and the end of each named group, in the order of the names.
    groups: Vec<Option<(usize, usize)>>,
}

impl Found {
    /// Returns the start and the end of the named group with this index, unless it is not part of the match.
    pub(crate) fn group(&self, index: usize) -> Option<(usize, usize)> {
        self.groups.get(index).copied().flatten()
    }
}

/// The result of a search in the text so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edge {
    Complete(Found),
    /// No match is complete. The earliest one that can still become complete begins here.
    Partial(usize),
    None,
}

/// The place between two characters.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: usize,
    before: Option<char>,
    /// The next character, or None at the end of the text so far.
    after: Option<char>,
    /// True if the next character ends the text so far.
    is_last: bool,
}

impl Place {
    fn satisfies(self, assertion: Assertion) -> bool {
        let [before, after] = [self.before, self.after].map(|c| move || c.is_some_and(is_word));
        match assertion {
            Assertion::TextStart => self.before.is_none(),
            Assertion::TextEnd => self.after.is_none(),
            Assertion::LastLineEnd => self.after.is_none() || (self.is_last && self.after == Some('\n')),
            Assertion::LineStart => matches!(self.before, None | Some('\n')),
            Assertion::LineEnd => matches!(self.after, None | Some('\n')),
            Assertion::WordEdge => before() != after(),
            Assertion::NoWordEdge => before() == after(),
            Assertion::WordStart => !before() && after(),
            Assertion::WordEnd => before() && !after(),
        }
    }
}

/// Returns true for the characters of `\w`.
pub(crate) fn is_word(c: char) -> bool {
    thread_local! {
        static WORDS: CharSet = CharSet::words();
    }
    if c.is_ascii() { c.is_ascii_alphanumeric() || c == '_' } else { WORDS.with(|words| words.has(c)) }
}

/// Threads in the order of their priority: places of the program, and where each match began.
#[derive(Debug, Clone, Default)]
struct Threads {
    places: Vec<(usize, usize)>,
    notes: Vec<usize>,
}

impl Threads {
    fn clear(&mut self) {
        self.places.clear();
        self.notes.clear();
    }

    fn push(&mut self, place: usize, start: usize, notes: &[usize]) {
        self.places.push((place, start));
        self.notes.extend_from_slice(notes);
    }

    fn notes(&self, index: usize, size: usize) -> &[usize] {
        self.notes.get(index * size..(index + 1) * size).unwrap_or_default()
    }
}

/// A search for the first match from a place on.
#[derive(Debug)]
pub(crate) struct Search {
    /// The threads that wait for the next character, before any step that takes none.
    threads: Threads,
    best: Option<Found>,
    from: usize,
    at: usize,
    before: Option<char>,
    /// True if an empty match at the first place is none.
    must_advance: bool,
    /// The threads at marked places since the best match was found.
    trail: Vec<Mark>,
    /// For each literal after a lazy repeat, the matches that are only taken for unfinished.
    ghosts: Vec<Ghosts>,
}

/// The end of the text so far: at most one newline that the searches have not taken, since a condition depends on what
/// follows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tail {
    pub(crate) newline: bool,
}

impl Search {
    /// Starts a search at a place, after a character.
    pub(crate) fn new(from: usize, before: Option<char>) -> Self {
        Self {
            threads: Threads::default(),
            best: None,
            from,
            at: from,
            before,
            must_advance: false,
            trail: Vec::new(),
            ghosts: Vec::new(),
        }
    }

    /// Starts the search again at a place.
    pub(crate) fn restart(&mut self, from: usize, before: Option<char>) {
        self.threads.clear();
        *self = Self { threads: std::mem::take(&mut self.threads), ..Self::new(from, before) };
    }

    pub(super) fn advancing(self) -> Self {
        Self { must_advance: true, ..self }
    }

    /// Returns how far the text has been searched.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Returns the match that no further text changes.
    pub(crate) fn settled(&self) -> Option<&Found> {
        self.best.as_ref().filter(|_| self.threads.places.is_empty())
    }

    /// Returns true if no further text changes the result of the search.
    pub(crate) fn is_settled(&self) -> bool {
        self.best.is_some() && self.threads.places.is_empty()
    }

    /// Returns the earliest start that the match can have, unless it is after the text that has been searched.
    pub(crate) fn earliest(&self) -> Option<usize> {
        let alive = self.threads.places.first().map(|(_, start)| *start);
        let best = self.best.as_ref().map(|best| best.start);
        alive.into_iter().chain(best.or_else(|| self.earliest_ghost())).min()
    }

    fn earliest_ghost(&self) -> Option<usize> {
        self.ghosts.iter().filter_map(Ghosts::earliest).min()
    }

    /// Takes the next character of the text, which is not its last one if a condition depends on that.
    pub(crate) fn take(&mut self, pattern: &Pattern, c: char, scratch: &mut Scratch) {
        let program = &pattern.program;
        let is_idle = self.threads.places.is_empty() && self.earliest_ghost().is_none();
        if !(is_idle && (self.best.is_some() || program.first.as_ref().is_some_and(|first| !first.has(c)))) {
            self.step(program, c, false, scratch);
        }
        let at = self.at + c.len_utf8();
        if self.best.is_some() && !self.threads.places.is_empty() && is_marked(self.at, at) {
            self.trail.push((at, self.threads.places.iter().map(|(step, _)| *step).collect()));
        }
        self.at = at;
        self.before = Some(c);
    }

    /// Returns the match so far if a better one is sought at a marked place, and all threads lead nowhere.
    pub(crate) fn best_at(&self, barren: &Barren) -> Option<&Found> {
        let is_covered = self.trail.last().is_some_and(|mark| mark.0 == self.at && barren.covers(mark));
        self.best.as_ref().filter(|_| is_covered)
    }

    /// Notes that the threads since the best match led to the end of the text without a better one, if that is so.
    pub(crate) fn give_up(&mut self, found: &Found, barren: &mut Barren) {
        if self.best.as_ref() == Some(found) {
            barren.extend(self.trail.drain(..));
        }
    }

    /// Returns the result of the search if the text ends here.
    pub(crate) fn edge(&self, pattern: &Pattern, tail: Tail, scratch: &mut Scratch) -> Edge {
        if let Some(settled) = self.settled() {
            return Edge::Complete(settled.clone());
        }
        let program = &pattern.program;
        let newline = tail.newline && program.sees_last_line;
        if !newline && self.earliest().is_none() && program.first.is_some() {
            return Edge::None;
        }
        let mut ended = self.without_trail();
        if newline {
            ended.step(program, '\n', true, scratch);
            ended.at += 1;
            ended.before = Some('\n');
        }
        let place = Place { at: ended.at, before: ended.before, after: None, is_last: false };
        ended.close(program, place, scratch);
        let is_late = |at: usize| matches!(program.steps.get(at), Some(Step::Take { is_late: true, .. }));
        let alive = scratch.parked.places.iter().find(|(at, _)| !is_late(*at)).map(|(_, start)| *start);
        match (alive.into_iter().chain(scratch.arrived).chain(ended.earliest_ghost()).min(), ended.best) {
            (_, Some(best)) => Edge::Complete(best),
            (Some(start), None) => Edge::Partial(start),
            (None, None) => Edge::None,
        }
    }

    /// Returns a copy for the end of the text, in time that does not depend on the size of the text.
    fn without_trail(&self) -> Self {
        Self {
            threads: self.threads.clone(),
            best: self.best.clone(),
            from: self.from,
            at: self.at,
            before: self.before,
            must_advance: self.must_advance,
            trail: Vec::new(),
            ghosts: self.ghosts.clone(),
        }
    }

    fn step(&mut self, program: &Program, c: char, is_last: bool, scratch: &mut Scratch) {
        let place = Place { at: self.at, before: self.before, after: Some(c), is_last };
        self.close(program, place, scratch);
        self.ghosts.resize_with(program.literals.len(), Ghosts::default);
        for (index, (ghosts, literal)) in self.ghosts.iter_mut().zip(&program.literals).enumerate() {
            let seen = scratch.lazy.iter().find(|(literal, _)| *literal == index);
            ghosts.take(literal, c, seen.map(|(_, start)| *start));
        }
        self.threads.clear();
        for (index, (at, start)) in scratch.parked.places.iter().enumerate() {
            if let Some(Step::Take { set, .. }) = program.steps.get(*at)
                && program.sets.get(*set).is_some_and(|set| set.has(c))
            {
                self.threads.push(at + 1, *start, scratch.parked.notes(index, program.notes));
            }
        }
    }

    /// Follows all steps that take no character, and parks the threads that wait for one. A match ends the threads of
    /// lower priority.
    fn close(&mut self, program: &Program, place: Place, scratch: &mut Scratch) {
        scratch.begin(program);
        for (index, (at, start)) in self.threads.places.iter().enumerate() {
            scratch.notes.clear();
            scratch.notes.extend_from_slice(self.threads.notes(index, program.notes));
            if scratch.follow(program, *at, *start, place, None) {
                self.best = Some(found(*start, place.at, &scratch.notes, program));
                self.trail.clear();
                return;
            }
        }
        let cannot_start = |first: &CharSet| place.after.is_some_and(|c| !first.has(c));
        if self.best.is_some() || program.first.as_ref().is_some_and(cannot_start) {
            return;
        }
        scratch.notes.clear();
        scratch.notes.resize(program.notes, UNSET);
        let refused = (self.must_advance && place.at == self.from).then_some(place.at);
        if scratch.follow(program, 0, place.at, place, refused) {
            self.best = Some(found(place.at, place.at, &scratch.notes, program));
        }
    }
}

fn found(start: usize, end: usize, notes: &[usize], program: &Program) -> Found {
    let names = notes.chunks_exact(2).take(program.names);
    let groups = names.map(|pair| match pair {
        [start, end] if *end != UNSET => Some((*start, *end)),
        _ => None,
    });
    Found { start, end, groups: groups.collect() }
}

/// A task of a step.
#[derive(Debug, Clone, Copy)]
enum Task {
    /// Continues at a place, in passes that took nothing yet.
    Go { at: usize, empty: usize },
    /// Returns a note to its value on the way to the next task.
    Restore { note: usize, value: usize },
}

/// The memory of one step of a search, which all searches share.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// For each place and set of empty passes, the last step that was there.
    seen: Vec<u32>,
    step: u32,
    tasks: Vec<Task>,
    notes: Vec<usize>,
    parked: Threads,
    /// The lazy repeats that a thread was at, by their literals, and the start of its match.
    lazy: Vec<(usize, usize)>,
    /// The start of the first match that came to a lazy repeat before an assertion.
    arrived: Option<usize>,
}

impl Scratch {
    fn begin(&mut self, program: &Program) {
        let states = program.steps.len() << program.levels;
        if self.seen.len() < states {
            self.seen.resize(states, 0);
        }
        self.step = self.step.wrapping_add(1);
        if self.step == 0 {
            self.seen.fill(0);
            self.step = 1;
        }
        self.parked.clear();
        self.lazy.clear();
        self.arrived = None;
    }

    /// Returns true at the first visit of a state in this step.
    fn visit(&mut self, at: usize, empty: usize, levels: u32) -> bool {
        match self.seen.get_mut((at << levels) + empty) {
            Some(seen) if *seen != self.step => {
                *seen = self.step;
                true
            }
            _ => false,
        }
    }

    /// Follows a thread. Returns true if it reaches a match that does not end at the refused place.
    fn follow(&mut self, program: &Program, at: usize, start: usize, place: Place, refused: Option<usize>) -> bool {
        self.tasks.clear();
        self.tasks.push(Task::Go { at, empty: 0 });
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Go { at, empty } => {
                    if self.run(program, at, empty, start, place) && refused != Some(place.at) {
                        return true;
                    }
                }
                Task::Restore { note, value } => drop(self.note(note, value)),
            }
        }
        false
    }

    /// Sets a note, and returns its value before.
    fn note(&mut self, note: usize, value: usize) -> usize {
        self.notes.get_mut(note).map_or(UNSET, |place| std::mem::replace(place, value))
    }

    fn set_note(&mut self, note: usize, value: usize) {
        let earlier = self.note(note, value);
        self.tasks.push(Task::Restore { note, value: earlier });
    }

    /// Runs a thread until it parks, ends or matches. Returns true if it matches.
    fn run(&mut self, program: &Program, mut at: usize, mut empty: usize, start: usize, place: Place) -> bool {
        while self.visit(at, empty, program.levels) {
            match program.steps.get(at) {
                Some(Step::Take { .. }) => {
                    // The passes that took nothing take this character, so that one thread is enough for all.
                    if empty == 0 || self.visit(at, 0, program.levels) {
                        self.parked.push(at, start, &self.notes);
                    }
                    return false;
                }
                Some(Step::Assert(assertion)) if place.satisfies(*assertion) => at += 1,
                Some(Step::Split(one, other)) => {
                    self.tasks.push(Task::Go { at: *other, empty });
                    at = *one;
                }
                Some(Step::Ghost(literal)) => {
                    self.lazy.push((*literal, start));
                    at += 1;
                }
                Some(Step::Arrive) => {
                    self.arrived.get_or_insert(start);
                    at += 1;
                }
                Some(Step::Jump(next)) => at = *next,
                Some(Step::Open(mark)) => {
                    self.set_note(*mark, place.at);
                    at += 1;
                }
                Some(Step::Close { mark, group }) => {
                    let start = self.notes.get(*mark).copied().unwrap_or(UNSET);
                    self.set_note(group * 2, start);
                    self.set_note(group * 2 + 1, place.at);
                    at += 1;
                }
                Some(Step::Enter(level)) => {
                    empty |= bit(*level);
                    at += 1;
                }
                Some(Step::Again { level, more, exit, is_greedy }) => {
                    let is_empty = empty & bit(*level) != 0;
                    empty &= !bit(*level);
                    let (one, other) = if *is_greedy { (*more, *exit) } else { (*exit, *more) };
                    at = if is_empty { *exit } else { one };
                    if !is_empty {
                        self.tasks.push(Task::Go { at: other, empty });
                    }
                }
                Some(Step::Match) => return true,
                Some(Step::Assert(_) | Step::Never) | None => return false,
            }
        }
        false
    }
}

/// Returns the bit of a level, which starts at 1.
fn bit(level: u32) -> usize {
    1 << (level - 1)
}
