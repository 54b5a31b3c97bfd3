//! Marked letters, which tell in a prompt what of it comes from the conversation.
//!
//! A marked letter is the character at a fixed distance above the letter. Where a template is rendered with marks, it reads each
//! as its letter: texts are compared, searched and measured as if nothing were marked, and what is cut out of them, joined or
//! rewritten keeps its marks, letter by letter. Without marks a text is only ever asked whether there are any.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::iter;

use super::budget;
use super::error::Fallible;
use super::python::repr::Text;

/// How many characters can be marked: those of Unicode's planes 0 to 3.
const SPAN: u32 = 0x4_0000;

/// A way to mark letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// From a letter to its marked letter, a multiple of [`SPAN`].
    distance: u32,
}

impl Marks {
    /// All that there are; no two have a marked letter in common. To the first two Unicode has assigned no characters.
    pub const ALL: [Self; 3] = [Self { distance: SPAN }, Self { distance: 2 * SPAN }, Self { distance: 3 * SPAN }];

    /// The marked letter. Characters above plane 3 stay what they are.
    #[must_use]
    pub fn mark(self, letter: char) -> char {
        let code = u32::from(letter);
        if code < SPAN { char::from_u32(code + self.distance).unwrap_or(letter) } else { letter }
    }

    /// The letter that this character reads as: without its mark, if it has one.
    #[must_use]
    pub fn letter(self, c: char) -> char {
        let code = u32::from(c) ^ self.distance;
        if code < SPAN { char::from_u32(code).unwrap_or(c) } else { c }
    }

    /// Whether there are marked letters in the text.
    #[must_use]
    pub fn are_in(self, text: &str) -> bool {
        // In UTF-8, these characters and no others start with this byte.
        let lead = 0xF0 + (self.distance / SPAN) as u8;
        text.as_bytes().contains(&lead)
    }

    /// The text with every letter marked.
    #[must_use]
    pub fn marked(self, text: &str) -> String {
        text.chars().map(|c| self.mark(c)).collect()
    }

    /// The text with no letter marked.
    #[must_use]
    pub fn plain(self, text: &str) -> Cow<'_, str> {
        if self.are_in(text) { text.chars().map(|c| self.letter(c)).collect() } else { text.into() }
    }

    /// The parts of a text in which all letters are marked, or none; with which.
    pub fn stretches(self, text: &str) -> impl Iterator<Item = (bool, &str)> {
        let is_marked = move |c: char| self.letter(c) != c;
        let mut rest = text;
        iter::from_fn(move || {
            let marked = is_marked(rest.chars().next()?);
            let end = rest.find(|c| is_marked(c) != marked).unwrap_or(rest.len());
            let (stretch, after) = rest.split_at(end);
            rest = after;
            Some((marked, stretch))
        })
    }

    /// The parts of a text that `cut` finds in the text without marks, with their marks.
    ///
    /// # Errors
    /// Those of `cut`.
    pub fn cut<'t, E>(
        self,
        text: &'t str,
        cut: impl for<'p> FnOnce(&'p str) -> Result<Vec<&'p str>, E>,
    ) -> Result<Vec<&'t str>, E> {
        let plain = self.plain(text);
        let places = places(&plain, text);
        let start = plain.as_ptr().addr();
        let part = |part: &str| {
            let at = part.as_ptr().addr() - start;
            &text[places[at]..places[at + part.len()]]
        };
        Ok(cut(&plain)?.into_iter().map(part).collect())
    }

    fn letters(self, text: &str) -> impl DoubleEndedIterator<Item = char> {
        text.chars().map(move |c| self.letter(c))
    }
}

thread_local! {
    static IN_USE: Cell<Option<Marks>> = const { Cell::new(None) };
}

/// While it lives, this thread reads marked letters as their letters; dropping it brings back what was read before.
#[derive(Debug)]
pub struct Reading {
    before: Option<Marks>,
}

impl Reading {
    /// Reads these marks, or none.
    #[must_use]
    pub fn start(marks: Option<Marks>) -> Self {
        Self { before: IN_USE.replace(marks) }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        IN_USE.set(self.before);
    }
}

/// The marks that are in use, if there are any in the text.
fn marks_in(text: &str) -> Option<Marks> {
    IN_USE.get().filter(|marks| marks.are_in(text))
}

/// The text as it reads.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    let Some(marks) = marks_in(text) else {
        return Cow::Borrowed(text);
    };
    budget::walked(text.len());
    marks.plain(text)
}

/// The letter that a character reads as.
#[must_use]
pub fn letter(c: char) -> char {
    IN_USE.get().map_or(c, |marks| marks.letter(c))
}

/// Whether two texts read alike.
pub(crate) fn same(left: &str, right: &str) -> bool {
    left == right || IN_USE.get().is_some_and(|marks| read_alike(marks, left, right))
}

fn read_alike(marks: Marks, left: &str, right: &str) -> bool {
    budget::walked(left.len().min(right.len()));
    marks.letters(left).eq(marks.letters(right))
}

/// How two texts compare as they read.
pub(crate) fn order(left: &str, right: &str) -> Ordering {
    let Some(marks) = IN_USE.get() else {
        return left.cmp(right);
    };
    budget::walked(left.len().min(right.len()));
    marks.letters(left).cmp(marks.letters(right))
}

/// Where the text goes on after this prefix, if it starts with it.
pub(crate) fn after_prefix(text: &str, prefix: &str) -> Option<usize> {
    let Some(marks) = IN_USE.get() else {
        return text.starts_with(prefix).then_some(prefix.len());
    };
    let mut rest = text.chars();
    let starts = marks.letters(prefix).all(|letter| rest.next().is_some_and(|c| marks.letter(c) == letter));
    starts.then(|| text.len() - rest.as_str().len())
}

/// Where in the text this suffix starts, if the text ends with it.
pub(crate) fn before_suffix(text: &str, suffix: &str) -> Option<usize> {
    let Some(marks) = IN_USE.get() else {
        return text.ends_with(suffix).then(|| text.len() - suffix.len());
    };
    let mut rest = text.chars();
    let ends = marks.letters(suffix).rev().all(|letter| rest.next_back().is_some_and(|c| marks.letter(c) == letter));
    ends.then_some(rest.as_str().len())
}

/// The parts of a text that `cut` finds in the text as it reads.
pub(crate) fn cut<'t>(
    text: &'t str,
    cut: impl for<'p> FnOnce(&'p str) -> Fallible<Vec<&'p str>>,
) -> Fallible<Vec<&'t str>> {
    let Some(marks) = marks_in(text) else {
        return cut(text);
    };
    budget::walk(text.len())?;
    marks.cut(text, cut)
}

/// For every byte of `plain`, and its end, where its character is in `text`.
fn places(plain: &str, text: &str) -> Vec<usize> {
    let mut places = Vec::with_capacity(plain.len() + 1);
    for (letter, (at, _)) in plain.chars().zip(text.char_indices()) {
        places.extend(iter::repeat_n(at, letter.len_utf8()));
    }
    places.push(text.len());
    places
}

/// What `rewrite` makes of the text as it reads. If that has as many letters, those stay marked that were; else what is marked is
/// rewritten by itself. `rewrite` may put several letters in place of one, but not one in place of several.
pub fn rewrite(text: &str, rewrite: impl Fn(&str) -> String) -> String {
    let Some(marks) = marks_in(text) else {
        return rewrite(text);
    };
    let rewritten = rewrite(&marks.plain(text));
    if rewritten.chars().count() != text.chars().count() {
        return by_stretch(marks, text, rewrite);
    }
    let letters = text.chars().zip(rewritten.chars());
    letters.map(|(old, new)| if marks.letter(old) == old { new } else { marks.mark(new) }).collect()
}

fn by_stretch(marks: Marks, text: &str, rewrite: impl Fn(&str) -> String) -> String {
    let rewritten = marks.stretches(text).map(|(is_marked, stretch)| match is_marked {
        true => marks.marked(&rewrite(&marks.plain(stretch))),
        false => rewrite(stretch),
    });
    rewritten.collect()
}

/// What was `made` of a text, all of it marked if letters of the text are.
#[must_use]
pub fn like(text: &str, made: String) -> String {
    match marks_in(text) {
        Some(marks) => marks.marked(&made),
        None => made,
    }
}

/// The marks that are in use, if there are any in the text.
#[must_use]
pub fn of(text: &str) -> Option<Marks> {
    marks_in(text)
}

/// Appends what `write` makes of a text as it reads; what it makes of marked letters is marked.
pub fn append(out: &mut String, text: &str, mut write: impl FnMut(&mut String, &str)) {
    let Some(marks) = marks_in(text) else {
        return write(out, text);
    };
    for (is_marked, stretch) in marks.stretches(text) {
        if is_marked {
            let mut written = String::new();
            write(&mut written, &marks.plain(stretch));
            out.push_str(&marks.marked(&written));
        } else {
            write(out, stretch);
        }
    }
}

/// Writes a text as it reads; what `write` makes of marked letters is marked.
pub(crate) fn write(
    out: &mut Text,
    text: &str,
    mut write: impl FnMut(&mut Text, &str) -> Fallible<()>,
) -> Fallible<()> {
    let Some(marks) = marks_in(text) else {
        return write(out, text);
    };
    for (is_marked, stretch) in marks.stretches(text) {
        if is_marked {
            let mut written = Text::new();
            write(&mut written, &marks.plain(stretch))?;
            out.push(&marks.marked(&written.finish()))?;
        } else {
            write(out, stretch)?;
        }
    }
    Ok(())
}
