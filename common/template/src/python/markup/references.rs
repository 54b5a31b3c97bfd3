//! Character references of HTML (`&lt;`, `&#60;`, `&#x3c;`), resolved as Python's `html.unescape`
//! does.

use crate::error::Fallible;
use crate::{budget, taint, unicode};

/// The longest reference that is looked up, without `&` and `;`.
const MAX_NAME_CHARS: usize = 32;

/// The steps to look up one reference, which happens twice.
const REFERENCE_STEPS: usize = 16;
/// The steps to look up a shorter name.
const PREFIX_STEPS: usize = 6;

/// Windows-1252 for 0x80 to 0x9f, which pages mean by these numbers. Unassigned numbers map to
/// themselves.
const WINDOWS: [char; 32] = [
    '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}', '\u{2c6}', '\u{2030}',
    '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}', '\u{90}', '\u{2018}', '\u{2019}', '\u{201c}',
    '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}', '\u{2dc}', '\u{2122}', '\u{161}', '\u{203a}', '\u{153}', '\u{9d}',
    '\u{17e}', '\u{178}',
];

/// Resolves the references of a text. A result is tainted if characters of its reference are.
pub(super) fn unescape(content: &str) -> Fallible<String> {
    let mut out = String::with_capacity(content.len());
    for part in taint::cut(content, references)? {
        match taint::strip(part).strip_prefix('&') {
            Some(rest) => {
                let mut meant = String::new();
                reference(rest, &mut meant);
                out.push_str(&taint::with_taint_of(part, meant));
            }
            None => out.push_str(part),
        }
    }
    Ok(out)
}

/// Splits a text into references and the text between them.
fn references(content: &str) -> Fallible<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = content;
    while let Some(at) = rest.find('&') {
        let (before, after) = rest.split_at(at);
        budget::steps(REFERENCE_STEPS)?;
        budget::alloc_values(2)?;
        let len = reference(&after[1..], &mut String::new());
        let (whole, after) = after.split_at(1 + len);
        parts.extend([before, whole]);
        rest = after;
    }
    parts.push(rest);
    Ok(parts)
}

/// Resolves the reference behind `&`; returns its length in bytes.
fn reference(rest: &str, out: &mut String) -> usize {
    let numeric = rest.strip_prefix('#').and_then(|number| {
        let (digits, radix, prefix) = match number.strip_prefix(['x', 'X']) {
            Some(digits) => (digits, 16, 2),
            None => (number, 10, 1),
        };
        let len = digits.bytes().take_while(|byte| char::from(*byte).is_digit(radix)).count();
        (len > 0).then(|| (prefix + len, number_meant(&digits[..len], radix)))
    });
    if let Some((len, c)) = numeric {
        out.extend(c);
        return len + usize::from(rest[len..].starts_with(';'));
    }
    named(rest, out)
}

/// Returns the character of a number; nothing if no text may contain it.
fn number_meant(digits: &str, radix: u32) -> Option<char> {
    let code = u32::from_str_radix(digits, radix).unwrap_or(u32::MAX);
    match code {
        0 => Some(char::REPLACEMENT_CHARACTER),
        0x0d => Some('\r'),
        0x80..=0x9f => WINDOWS.get(code as usize - 0x80).copied(),
        0x01..=0x08 | 0x0b | 0x0e..=0x1f | 0x7f | 0xfdd0..=0xfdef => None,
        _ if code <= 0x10_ffff && code & 0xfffe == 0xfffe => None,
        _ => Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)),
    }
}

fn named(rest: &str, out: &mut String) -> usize {
    let ends_name = |c: char| matches!(c, '\t' | '\n' | '\x0c' | ' ' | '<' | '&' | '#' | ';');
    let len: usize = rest.chars().take_while(|c| !ends_name(*c)).take(MAX_NAME_CHARS).map(char::len_utf8).sum();
    let whole = len + usize::from(len > 0 && rest[len..].starts_with(';'));
    if let Some(text) = unicode::entity(&rest[..whole]) {
        out.push_str(text);
        return whole;
    }
    // A name that needs no semicolon may be followed by any character.
    for (end, _) in rest[..whole].char_indices().skip(2).collect::<Vec<_>>().into_iter().rev() {
        budget::spend(PREFIX_STEPS);
        if let Some(text) = unicode::entity(&rest[..end]) {
            out.push_str(text);
            return end;
        }
    }
    out.push('&');
    0
}
