//! `wordwrap`: Python's `textwrap.wrap`, paragraph by paragraph.

use std::ops::Range;

use minijinja::Value;

use crate::arguments::Args;
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::convert::{int_arg, or_none, text_arg};
use crate::python::text::lines;
use crate::text_buffer::TextBuffer;
use crate::value::text;
use crate::{budget, taint, unicode};

/// White space that `textwrap` breaks at.
const SPACE: [char; 6] = ['\t', '\n', '\x0b', '\x0c', '\r', ' '];

pub(super) fn wordwrap(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let names = ["width", "break_long_words", "wrapstring", "break_on_hyphens"];
    let [width, break_long, separator, on_hyphens] = args.bind("wordwrap", names)?;
    let width = width.map_or(Ok(79), |width| int_arg(&width))?;
    let on = |value: Option<Value>| value.is_none_or(|value| value.is_true());
    let separator = or_none(separator).unwrap_or_else(|| Value::from("\n"));
    let separator = text_arg(&separator, "wordwrap")?;
    let content = text_arg(value, "wordwrap")?;
    let width =
        usize::try_from(width).ok().filter(|width| *width > 0).ok_or_else(|| fail("invalid width (must be > 0)"))?;
    let wrapper = Wrapper { width, break_long: on(break_long), on_hyphens: on(on_hyphens) };
    let mut out = TextBuffer::new();
    for (at, paragraph) in lines(content, false)?.into_iter().enumerate() {
        out.push(if at > 0 { separator } else { "" })?;
        for (at, line) in wrapper.wrap(paragraph)?.into_iter().enumerate() {
            out.push(if at > 0 { separator } else { "" })?;
            out.push(&paragraph[line])?;
        }
    }
    text(out.finish())
}

struct Wrapper {
    width: usize,
    break_long: bool,
    on_hyphens: bool,
}

/// The characters of a paragraph, each with its offset, followed by the end.
type Chars = [(usize, char)];

impl Wrapper {
    /// Returns the lines of a paragraph.
    fn wrap(&self, paragraph: &str) -> Fallible<Vec<Range<usize>>> {
        budget::walk(paragraph.len())?;
        budget::room(paragraph.len().saturating_mul(4 * size_of::<(usize, char)>()))?;
        let mut chars: Vec<_> = paragraph.char_indices().map(|(at, c)| (at, taint::strip_char(c))).collect();
        chars.push((paragraph.len(), ' '));
        let mut chunks = self.chunks(&chars[..chars.len() - 1]);
        chunks.reverse();
        let mut wrapped: Vec<Range<usize>> = Vec::new();
        while let Some(chunk) = chunks.last() {
            if !wrapped.is_empty() && is_blank(&chars[chunk.clone()])? {
                chunks.pop();
            }
            let mut line = self.fill(&chars, &mut chunks);
            if let Some(last) = line.last()
                && is_blank(&chars[last.clone()])?
            {
                line.pop();
            }
            if let (Some(first), Some(last)) = (line.first(), line.last()) {
                wrapped.push(chars[first.start].0..chars[last.end].0);
            }
        }
        Ok(wrapped)
    }

    /// Takes as many chunks as fit in a line. A chunk that is too long for any line is broken, or
    /// gets its own line.
    fn fill(&self, chars: &Chars, chunks: &mut Vec<Range<usize>>) -> Vec<Range<usize>> {
        let (mut line, mut len) = (Vec::new(), 0);
        while let Some(chunk) = chunks.pop_if(|chunk| len + chunk.len() <= self.width) {
            len += chunk.len();
            line.push(chunk);
        }
        if let Some(chunk) = chunks.pop_if(|chunk| chunk.len() > self.width) {
            if self.break_long {
                let end = chunk.start + self.break_at(&chars[chunk.clone()], self.width - len);
                line.push(chunk.start..end);
                chunks.push(end..chunk.end);
            } else if line.is_empty() {
                line.push(chunk);
            } else {
                chunks.push(chunk);
            }
        }
        line
    }

    /// Returns the length of the part of a chunk that fits.
    fn break_at(&self, chunk: &Chars, room: usize) -> usize {
        let head = &chunk[..room];
        let hyphen = head.iter().rposition(|(_, c)| *c == '-').filter(|_| self.on_hyphens);
        match hyphen.filter(|at| head[..*at].iter().any(|(_, c)| *c != '-')) {
            Some(hyphen) => hyphen + 1,
            None => room,
        }
    }

    /// Splits into words and white space; words with hyphens are several chunks.
    fn chunks(&self, chars: &Chars) -> Vec<Range<usize>> {
        let mut chunks = Vec::new();
        let mut start = 0;
        while start < chars.len() {
            let in_space = SPACE.contains(&chars[start].1);
            let same = |(_, c): &&(usize, char)| SPACE.contains(c) == in_space;
            let end = start + chars[start..].iter().take_while(same).count();
            if in_space || !self.on_hyphens {
                chunks.push(start..end);
            } else {
                split_word(chars, start..end, &mut chunks);
            }
            start = end;
        }
        chunks
    }
}

fn is_blank(chunk: &Chars) -> Fallible<bool> {
    budget::scan(chunk.len())?;
    Ok(chunk.iter().all(|(_, c)| SPACE.contains(c) || unicode::is_space(*c)))
}

/// Splits a word after hyphens between letters, and around dashes.
fn split_word(chars: &Chars, word: Range<usize>, chunks: &mut Vec<Range<usize>>) {
    let mut start = word.start;
    for at in word.clone() {
        if at < start || chars[at].1 != '-' {
            continue;
        }
        match dashes(chars, at) {
            Some(end) => {
                chunks.extend([start..at, at..end].into_iter().filter(|chunk| !chunk.is_empty()));
                start = end;
            }
            None if at > start && breaks_after(chars, at) => {
                chunks.push(start..at + 1);
                start = at + 1;
            }
            None => {}
        }
    }
    if start < word.end {
        chunks.push(start..word.end);
    }
}

/// Returns the end of the dashes between two words that start here.
fn dashes(chars: &Chars, at: usize) -> Option<usize> {
    let before = chars[at.checked_sub(1)?].1;
    if !is_word(before) && !matches!(before, '!' | '"' | '\'' | '&' | '.' | ',' | '?') {
        return None;
    }
    let end = at + chars[at..].iter().take_while(|(_, c)| *c == '-').count();
    (end >= at + 2 && is_word(chars.get(end)?.1)).then_some(end)
}

/// Returns true if two letters (or a letter, a hyphen and a letter) are before the hyphen, and the
/// same behind it.
fn breaks_after(chars: &Chars, hyphen: usize) -> bool {
    let letter = |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(|(_, c)| is_letter(*c));
    let hyphen_at = |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(|(_, c)| *c == '-');
    let (before, after) = (|by| hyphen.checked_sub(by), |by| hyphen.checked_add(by));
    let ends = letter(before(1)) && (letter(before(2)) || (hyphen_at(before(2)) && letter(before(3))));
    ends && letter(after(1)) && (letter(after(2)) || (hyphen_at(after(2)) && letter(after(3))))
}

fn is_word(c: char) -> bool {
    c == '_' || unicode::is_alpha(c) || unicode::is_numeric(c)
}

fn is_letter(c: char) -> bool {
    is_word(c) && unicode::decimal(c).is_none()
}

#[cfg(test)]
mod tests {
    use super::Wrapper;
    use crate::budget::Meter;
    use crate::limits::Limits;

    fn wrapped(width: usize, paragraph: &str) -> Vec<String> {
        let _meter = Meter::start(&Limits::default());
        let wrapper = Wrapper { width, break_long: true, on_hyphens: true };
        let lines = wrapper.wrap(paragraph).unwrap_or_default();
        lines.into_iter().map(|line| paragraph[line].to_owned()).collect()
    }

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrapped(7, "one two three"), ["one two", "three"]);
        assert_eq!(wrapped(5, "well-known fact"), ["well-", "known", "fact"]);
    }

    #[test]
    fn long_words_are_broken() {
        assert_eq!(wrapped(3, "abcdefg"), ["abc", "def", "g"]);
    }
}
