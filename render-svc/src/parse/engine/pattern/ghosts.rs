//! Partial matches that `regex` reports although nothing can complete them.
//!
//! A lazy repeat of one character, such as `[^<]*?` before a literal, looks for the literal first and at the characters
//! between them later. A partial search therefore takes the repeat for unfinished until the literal occurs, even if a
//! character before it cannot be repeated. Before a literal of one character that is so for the last character of the
//! text only. The reference holds text back for such a match, and so do the searches here.

/// The literal after a lazy repeat.
#[derive(Debug, Clone)]
pub(super) struct Literal {
    chars: Vec<char>,
    /// For each size of a part that has occurred, the size of the longest start of the literal that ends it.
    fallback: Vec<usize>,
}

impl Literal {
    pub(super) fn new(chars: Vec<char>) -> Self {
        let mut literal = Self { chars, fallback: vec![0, 0] };
        for at in 1..literal.chars.len() {
            let size = literal.fallback.get(at).copied().unwrap_or(0);
            let c = literal.chars.get(at).copied().unwrap_or_default();
            let next = literal.step(size, c);
            literal.fallback.push(next);
        }
        literal
    }

    /// Returns the size of the literal's start that has occurred, after one more character.
    fn step(&self, mut size: usize, c: char) -> usize {
        loop {
            if self.chars.get(size) == Some(&c) {
                return size + 1;
            }
            if size == 0 {
                return 0;
            }
            size = self.fallback.get(size).copied().unwrap_or(0);
        }
    }
}

/// The unfinished repeats before one literal.
#[derive(Debug, Clone, Default)]
pub(super) struct Ghosts {
    /// Where a thread was in the repeat, in characters, and where its match began. Both grow.
    seen: Vec<(usize, usize)>,
    /// The size of the literal's start that has occurred.
    size: usize,
    /// The number of characters so far.
    count: usize,
}

impl Ghosts {
    /// Returns the earliest start of an unfinished match.
    pub(super) fn earliest(&self) -> Option<usize> {
        self.seen.first().map(|(_, start)| *start)
    }

    /// Takes a character, before which a thread of a match with this start was in the repeat.
    pub(super) fn take(&mut self, literal: &Literal, c: char, start: Option<usize>) {
        let size = literal.chars.len();
        self.count += 1;
        if size == 1 {
            self.seen.clear();
        } else if !self.seen.is_empty() {
            self.size = literal.step(self.size, c);
            if self.size == size {
                let first = self.count - size;
                self.seen.retain(|(place, _)| *place >= first);
                self.size = literal.fallback.get(size).copied().unwrap_or(0);
            }
        }
        let Some(start) = start else { return };
        if self.seen.is_empty() {
            self.size = 0;
        }
        while self.seen.last().is_some_and(|(_, later)| *later >= start) {
            self.seen.pop();
        }
        self.seen.push((self.count - 1, start));
        // Those between the first and the ones that the next occurrence can spare vanish together with the first.
        if self.seen.len() > size + 1 {
            self.seen.remove(1);
        }
    }
}
