//! The characters of a pattern. White space and comments between them are skipped where the flag `x` is on.

/// A reader of a pattern's characters.
#[derive(Debug)]
pub(super) struct Source {
    chars: Vec<char>,
    /// The index of the next character.
    pub(super) at: usize,
    /// True where white space and comments are skipped.
    pub(super) is_verbose: bool,
}

impl Source {
    pub(super) fn new(pattern: &str) -> Self {
        Self { chars: pattern.chars().collect(), at: 0, is_verbose: false }
    }

    /// Returns the index of the next character that is not skipped, from an index on.
    fn skipped(&self, mut at: usize) -> usize {
        if !self.is_verbose {
            return at;
        }
        loop {
            match self.chars.get(at) {
                Some('#') => at += self.chars.iter().skip(at).take_while(|c| **c != '\n').count(),
                Some(c) if super::super::python::is_space(*c) => at += 1,
                _ => return at,
            }
        }
    }

    /// Takes the next character.
    pub(super) fn next(&mut self) -> Option<char> {
        self.at = self.skipped(self.at);
        self.next_raw()
    }

    /// Takes the next character, even if it is white space.
    pub(super) fn next_raw(&mut self) -> Option<char> {
        let c = self.chars.get(self.at).copied();
        self.at += usize::from(c.is_some());
        c
    }

    /// Returns the next character without taking it.
    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.skipped(self.at)).copied()
    }

    /// Takes the characters of a token if they are next. Otherwise takes nothing.
    pub(super) fn take(&mut self, token: &str) -> bool {
        let mut at = self.at;
        for expected in token.chars() {
            at = self.skipped(at);
            if self.chars.get(at) != Some(&expected) {
                return false;
            }
            at += 1;
        }
        self.at = at;
        true
    }

    /// Takes characters as long as they satisfy a condition.
    pub(super) fn take_while(&mut self, mut is_taken: impl FnMut(char) -> bool) -> String {
        let mut taken = String::new();
        loop {
            let at = self.skipped(self.at);
            match self.chars.get(at) {
                Some(c) if is_taken(*c) => taken.push(*c),
                _ => break,
            }
            self.at = at + 1;
        }
        taken
    }

    /// Returns true if nothing remains that is not skipped.
    pub(super) fn is_at_end(&self) -> bool {
        self.skipped(self.at) >= self.chars.len()
    }
}
