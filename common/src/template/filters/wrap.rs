//! `wordwrap`: Python's `textwrap.wrap`, paragraph by paragraph.

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::super::machine::Machine;
use super::super::python::call::{Args, int_arg, or_none, text_arg};
use super::super::python::text::lines;
use super::super::unicode;
use super::super::value::text;

/// White space that `textwrap` breaks at.
const SPACE: [char; 6] = ['\t', '\n', '\x0b', '\x0c', '\r', ' '];

pub(super) fn wordwrap(_: &mut Machine, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let names = ["width", "break_long_words", "wrapstring", "break_on_hyphens"];
    let [width, break_long, separator, on_hyphens] = args.bind("wordwrap", names)?;
    let width = width.map_or(Ok(79), |width| int_arg(&width))?;
    let on = |value: Option<Value>| value.is_none_or(|value| value.is_true());
    let separator = or_none(separator).unwrap_or_else(|| Value::from("\n"));
    let separator = text_arg(&separator, "wordwrap")?;
    let content = text_arg(value, "wordwrap")?;
    let width =
        usize::try_from(width).ok().filter(|width| *width > 0).ok_or_else(|| fail("invalid width (must be > 0)"))?;
    budget::alloc(content.len().saturating_mul(2 + separator.len()))?;
    let wrapper = Wrapper { width, break_long: on(break_long), on_hyphens: on(on_hyphens) };
    let paragraphs: Vec<String> =
        lines(content, false)?.into_iter().map(|line| wrapper.wrap(line).join(separator)).collect();
    text(paragraphs.join(separator))
}

struct Wrapper {
    width: usize,
    break_long: bool,
    on_hyphens: bool,
}

impl Wrapper {
    fn wrap(&self, line: &str) -> Vec<String> {
        let mut chunks = self.chunks(line);
        chunks.reverse();
        let mut wrapped: Vec<String> = Vec::new();
        while let Some(chunk) = chunks.last() {
            if is_space(chunk) && !wrapped.is_empty() {
                chunks.pop();
            }
            let mut current = self.fill(&mut chunks);
            if current.last().is_some_and(|last| is_space(last)) {
                current.pop();
            }
            if !current.is_empty() {
                wrapped.push(current.concat());
            }
        }
        wrapped
    }

    /// As many chunks as fit in a line; a chunk too long for any line is broken or stands alone.
    fn fill(&self, chunks: &mut Vec<String>) -> Vec<String> {
        let (mut current, mut len) = (Vec::new(), 0);
        while let Some(chunk) = chunks.pop_if(|chunk| len + chunk.chars().count() <= self.width) {
            len += chunk.chars().count();
            current.push(chunk);
        }
        if let Some(chunk) = chunks.pop_if(|chunk| chunk.chars().count() > self.width) {
            if self.break_long {
                let (head, tail) = self.break_chunk(&chunk, self.width - len);
                current.push(head);
                chunks.push(tail);
            } else if current.is_empty() {
                current.push(chunk);
            } else {
                chunks.push(chunk);
            }
        }
        current
    }

    fn break_chunk(&self, chunk: &str, room: usize) -> (String, String) {
        let chars: Vec<char> = chunk.chars().collect();
        let mut end = room.max(usize::from(self.width < 1)).min(chars.len());
        if self.on_hyphens && chars.len() > room {
            let hyphen = chars[..room].iter().rposition(|c| *c == '-');
            if let Some(hyphen) = hyphen.filter(|at| chars[..*at].iter().any(|c| *c != '-')) {
                end = hyphen + 1;
            }
        }
        (chars[..end].iter().collect(), chars[end..].iter().collect())
    }

    /// Words and the space between them; words with hyphens are several chunks.
    fn chunks(&self, line: &str) -> Vec<String> {
        let mut chunks = Vec::new();
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let in_space = SPACE.contains(&first);
            let end = rest.find(|c| SPACE.contains(&c) != in_space).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            if self.on_hyphens && !in_space {
                split_hyphens(word, &mut chunks)
            } else {
                chunks.push(word.to_owned())
            }
            rest = after;
        }
        chunks
    }
}

fn is_space(chunk: &str) -> bool {
    chunk.chars().all(|c| SPACE.contains(&c) || super::super::lexer::is_space(c))
}

fn is_letter(c: char) -> bool {
    unicode::is_alpha(c)
}

/// Breaks after hyphens that stand between letters, and around dashes.
fn split_hyphens(word: &str, chunks: &mut Vec<String>) {
    let chars: Vec<char> = word.chars().collect();
    let mut start = 0;
    let mut at = 0;
    while at < chars.len() {
        if chars[at] != '-' {
            at += 1;
            continue;
        }
        let dashes = chars[at..].iter().take_while(|c| **c == '-').count();
        let after = at + dashes;
        let followed = chars.get(after).is_some_and(|c| *c == '_' || is_letter(*c) || unicode::is_numeric(*c));
        if dashes >= 2 && at > start && followed {
            chunks.push(chars[start..at].iter().collect());
            chunks.push(chars[at..after].iter().collect());
            start = after;
        } else if dashes == 1 && breaks_after(&chars, start, at) {
            chunks.push(chars[start..after].iter().collect());
            start = after;
        }
        at = after;
    }
    if start < chars.len() {
        chunks.push(chars[start..].iter().collect());
    }
}

/// Two letters (or a letter, a hyphen and a letter) before the hyphen, and the same after it.
fn breaks_after(chars: &[char], start: usize, hyphen: usize) -> bool {
    let letter = |at: usize| chars.get(at).is_some_and(|c| is_letter(*c));
    let before = hyphen >= start + 2 && letter(hyphen - 1) && letter(hyphen - 2);
    let after =
        letter(hyphen + 1) && (letter(hyphen + 2) || (chars.get(hyphen + 2) == Some(&'-') && letter(hyphen + 3)));
    before && after
}
