//! The computations of Python's text methods.

use std::borrow::Cow;
use std::collections::HashSet;

use minijinja::Value;

use crate::error::{Fallible, fail};
use crate::python::convert::int_arg;
use crate::unicode::is_space;
use crate::{budget, taint, unicode};

/// Returns the text with the first character in title case and all other characters in lower case.
pub(crate) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return String::new();
    };
    // A final sigma depends on the characters before it, so the whole text is lowered at once.
    let lower = text.to_lowercase();
    let first_lower: String = first.to_lowercase().collect();
    let rest = lower.strip_prefix(first_lower.as_str()).unwrap_or_default();
    unicode::title_case(first) + rest
}

/// Returns the text with title case at the start of every run of cased characters.
pub(crate) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for (at, c) in text.char_indices() {
        if !in_word {
            out.push_str(&unicode::title_case(c));
        } else if c == '\u{3a3}' {
            out.push(if is_final_sigma(text, at) { '\u{3c2}' } else { '\u{3c3}' });
        } else {
            out.extend(c.to_lowercase());
        }
        in_word = unicode::is_cased(c);
    }
    out
}

/// Returns true if the sigma at `at` ends a word. Its lower case is then another character.
fn is_final_sigma(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back().is_some_and(unicode::is_cased);
    let after = text[at..].chars().nth(1).is_some_and(unicode::is_cased);
    before && !after
}

pub(crate) fn swapcase(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if c == '\u{3a3}' {
            out.push(if is_final_sigma(text, at) { '\u{3c2}' } else { '\u{3c3}' });
        } else if unicode::is_upper(c) {
            out.extend(c.to_lowercase());
        } else if unicode::is_lower(c) {
            out.extend(c.to_uppercase());
        } else {
            out.push(c);
        }
    }
    out
}

pub(crate) fn casefold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| unicode::push_case_folded(&mut out, c));
    out
}

pub(crate) fn is_lower(text: &str) -> bool {
    let upper = |c| unicode::is_upper(c) || unicode::is_title(c);
    text.chars().any(unicode::is_lower) && !text.chars().any(upper)
}

pub(crate) fn is_upper(text: &str) -> bool {
    let lower = |c| unicode::is_lower(c) || unicode::is_title(c);
    text.chars().any(unicode::is_upper) && !text.chars().any(lower)
}

pub(crate) fn is_title(text: &str) -> bool {
    let (mut in_word, mut any) = (false, false);
    for c in text.chars() {
        if unicode::is_upper(c) || unicode::is_title(c) {
            if in_word {
                return false;
            }
            (in_word, any) = (true, true);
        } else if unicode::is_lower(c) {
            if !in_word {
                return false;
            }
            any = true;
        } else {
            in_word = false;
        }
    }
    any
}

pub(crate) fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    let starts = chars.next().is_some_and(|c| c == '_' || unicode::is_alpha(c));
    starts && chars.all(|c| c == '_' || unicode::is_alpha(c) || unicode::decimal(c).is_some())
}

/// Removes the given characters, or white space, from both ends of the text.
pub(crate) fn strip<'t>(text: &'t str, chars: Option<&str>, left: bool, right: bool) -> &'t str {
    let chars = chars.map(|chars| CharSet::of(&taint::strip(chars)));
    let drops = |c: char| chars.as_ref().map_or_else(|| is_space(c), |chars| chars.contains(c));
    let drop = |c: char| drops(taint::strip_char(c));
    let text = if left { text.trim_start_matches(drop) } else { text };
    if right { text.trim_end_matches(drop) } else { text }
}

/// The characters of a text.
#[derive(Default)]
struct CharSet {
    /// One bit per character.
    ascii: u128,
    others: HashSet<char>,
}

impl CharSet {
    fn of(text: &str) -> Self {
        budget::walked(text.len());
        let mut set = Self::default();
        for c in text.chars() {
            if c.is_ascii() {
                set.ascii |= 1 << u32::from(c);
            } else {
                set.others.insert(c);
            }
        }
        set
    }

    fn contains(&self, c: char) -> bool {
        if c.is_ascii() { self.ascii >> u32::from(c) & 1 == 1 } else { self.others.contains(&c) }
    }
}

/// Splits at most `limit` times from the left.
pub(crate) fn split<'t>(text: &'t str, separator: Option<&str>, limit: Option<usize>) -> Fallible<Vec<&'t str>> {
    budget::walk(separator.map_or(0, str::len))?;
    let separator = separator.map(taint::strip);
    taint::cut(text, |text| match separator.as_deref() {
        Some("") => Err(fail("empty separator")),
        Some(separator) => match limit {
            Some(limit) => collect(text.splitn(limit.saturating_add(1), separator)),
            None => collect(text.split(separator)),
        },
        None => split_space(text, limit.unwrap_or(usize::MAX)),
    })
}

/// Collects the parts, each charged to the budget.
fn collect<'t>(parts: impl Iterator<Item = &'t str>) -> Fallible<Vec<&'t str>> {
    let mut collected = Vec::new();
    for part in parts {
        budget::alloc_values(1)?;
        collected.push(part);
    }
    Ok(collected)
}

fn split_space(text: &str, limit: usize) -> Fallible<Vec<&str>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if words.len() == limit {
            words.push(rest);
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        budget::alloc_values(1)?;
        words.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    Ok(words)
}

/// Splits at most `limit` times from the right.
pub(crate) fn rsplit<'t>(text: &'t str, separator: Option<&str>, limit: Option<usize>) -> Fallible<Vec<&'t str>> {
    budget::walk(separator.map_or(0, str::len))?;
    let separator = separator.map(taint::strip);
    let mut parts = taint::cut(text, |text| match (separator.as_deref(), limit) {
        (Some(""), _) => Err(fail("empty separator")),
        (Some(separator), Some(limit)) => collect(text.rsplitn(limit.saturating_add(1), separator)),
        (Some(separator), None) => collect(text.rsplit(separator)),
        (None, limit) => rsplit_space(text, limit.unwrap_or(usize::MAX)),
    })?;
    parts.reverse();
    Ok(parts)
}

fn rsplit_space(text: &str, limit: usize) -> Fallible<Vec<&str>> {
    let mut words = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if words.len() == limit {
            words.push(rest);
            break;
        }
        let start = rest.char_indices().rev().find(|(_, c)| is_space(*c)).map_or(0, |(at, c)| at + c.len_utf8());
        budget::alloc_values(1)?;
        words.push(&rest[start..]);
        rest = rest[..start].trim_end_matches(is_space);
    }
    Ok(words)
}

/// Splits at every line end of Python.
pub(crate) fn lines(text: &str, keep_ends: bool) -> Fallible<Vec<&str>> {
    taint::cut(text, |text| split_lines(text, keep_ends))
}

fn split_lines(text: &str, keep_ends: bool) -> Fallible<Vec<&str>> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_line_end) {
        let end = if rest[at..].starts_with("\r\n") { 2 } else { rest[at..].chars().next().map_or(0, char::len_utf8) };
        budget::alloc_values(1)?;
        lines.push(&rest[..if keep_ends { at + end } else { at }]);
        rest = &rest[at + end..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    Ok(lines)
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\x0b' | '\x0c' | '\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Replaces at most `count` occurrences of `old`.
pub(crate) fn replace(text: &str, old: &str, new: &str, count: Option<usize>) -> Fallible<String> {
    let count = count.unwrap_or(usize::MAX);
    budget::walk(old.len())?;
    let (plain, plain_old) = (taint::strip(text), taint::strip(old));
    let found = if old.is_empty() { text.chars().count() + 1 } else { plain.matches(&*plain_old).count() };
    let grown = text.len().saturating_add(found.min(count).saturating_mul(new.len().saturating_sub(old.len())));
    budget::steps(found.min(count))?;
    budget::alloc(grown)?;
    match plain {
        Cow::Borrowed(text) => Ok(text.replacen(&*plain_old, new, count)),
        Cow::Owned(_) if old.is_empty() => Ok(text.replacen("", new, count)),
        Cow::Owned(_) => Ok(split(text, Some(old), Some(count))?.join(new)),
    }
}

/// Returns the text between two positions, and the start in characters. Returns None if the start
/// is beyond the end.
pub(crate) fn window<'t>(
    text: &'t str,
    start: Option<&Value>,
    stop: Option<&Value>,
) -> Fallible<Option<(usize, &'t str)>> {
    let given = |value: Option<&Value>| value.filter(|value| !value.is_none()).map(int_arg).transpose();
    let (start, stop) = (given(start)?, given(stop)?);
    if start.is_none() && stop.is_none() {
        return Ok(Some((0, text)));
    }
    budget::walk(text.len())?;
    let len = text.chars().count();
    let resolve = |at: i64| {
        let at = if at < 0 { at.saturating_add(len as i64) } else { at };
        usize::try_from(at).unwrap_or(0)
    };
    let start = start.map_or(0, resolve);
    let stop = stop.map_or(len, resolve).min(len);
    if start > stop {
        return Ok(None);
    }
    let byte = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    Ok(Some((start, &text[byte(start)..byte(stop)])))
}

/// The alignment of a text in a wider field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
    Center,
}

/// Returns the text padded to `width` characters.
pub(crate) fn justify(text: &str, width: i64, fill: char, side: Side) -> Fallible<String> {
    let len = text.chars().count();
    let width = usize::try_from(width).unwrap_or(0);
    let padding = width.saturating_sub(len);
    budget::alloc(text.len().saturating_add(padding.saturating_mul(fill.len_utf8())))?;
    let before = match side {
        Side::Left => 0,
        Side::Right => padding,
        // CPython adds the odd fill character on the left if the width is odd.
        Side::Center => padding / 2 + (padding & width & 1),
    };
    let mut out = String::with_capacity(text.len() + padding * fill.len_utf8());
    push_filling(&mut out, fill, before);
    out.push_str(text);
    push_filling(&mut out, fill, padding - before);
    Ok(out)
}

fn push_filling(out: &mut String, fill: char, mut count: usize) {
    const FILL_PIECE_CHARS: usize = 4096;
    let piece = fill.to_string().repeat(count.min(FILL_PIECE_CHARS));
    while count > 0 {
        let len = count.min(FILL_PIECE_CHARS);
        out.push_str(&piece[..len * fill.len_utf8()]);
        count -= len;
    }
}

/// Inserts zeros between the sign and the digits.
pub(crate) fn zfill(text: &str, width: i64) -> Fallible<String> {
    let is_sign = |c: &char| matches!(taint::strip_char(*c), '+' | '-');
    let sign = text.chars().next().filter(is_sign);
    let (sign, digits) = text.split_at(sign.map_or(0, char::len_utf8));
    let width = width.saturating_sub(i64::from(!sign.is_empty()));
    Ok(sign.to_owned() + &justify(digits, width, '0', Side::Right)?)
}

pub(crate) fn expand_tabs(text: &str, size: usize) -> Fallible<String> {
    let mut out = String::with_capacity(text.len());
    let mut column = 0;
    for c in text.chars() {
        match taint::strip_char(c) {
            '\t' => {
                let spaces = if size == 0 { 0 } else { size - column % size };
                budget::alloc(spaces)?;
                out.extend(std::iter::repeat_n(' ', spaces));
                column += spaces;
            }
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            _ => {
                out.push(c);
                column += 1;
            }
        }
    }
    Ok(out)
}
