//! The pieces of a text, which a template may show or leave out.

use std::ops::Range;

/// The size from which a piece is divided, so that a cut in its middle is seen.
pub(super) const LONG_PIECE_BYTES: usize = 64;
/// The longest tag, such as `</think>`, at which a template may cut a text.
const MAX_TAG_BYTES: usize = 64;

/// Returns the pieces of a text between tags and the ends of lines, each from its first to its last letter or
/// digit. A long one is two pieces. A text without any is one piece.
pub(super) fn pieces(text: &str) -> Vec<Range<usize>> {
    let (mut pieces, mut start) = (Vec::new(), 0);
    let mut add = |range: Range<usize>| {
        let piece = &text[range.clone()];
        let last = piece.char_indices().rfind(|(_, c)| c.is_alphanumeric()).map(|(at, c)| at + c.len_utf8());
        let first = piece.find(char::is_alphanumeric);
        if let Some((first, last)) = first.zip(last) {
            let (first, last) = (range.start + first, range.start + last);
            let second = second_half(&text[first..last]).map(|half| first + half);
            pieces.push(first..second.unwrap_or(last));
            pieces.extend(second.map(|second| second..last));
        }
    };
    for (at, open) in text.char_indices().filter(|(_, c)| matches!(c, '<' | '[' | '\n')) {
        if at < start {
            continue;
        }
        if open == '\n' {
            add(start..at);
            start = at;
        } else if let Some(end) = tag_end(&text[at..], open) {
            add(start..at);
            start = at + end;
        }
    }
    add(start..text.len());
    if pieces.is_empty() {
        pieces.push(0..text.len());
    }
    pieces
}

/// Returns the start of the second half of a long piece: of a word.
fn second_half(piece: &str) -> Option<usize> {
    let middle = piece.floor_char_boundary(piece.len() / 2);
    let space = middle + piece[middle..].find(char::is_whitespace).filter(|_| piece.len() >= LONG_PIECE_BYTES)?;
    Some(space + piece[space..].find(char::is_alphanumeric)?)
}

/// Returns the size of the tag at the start of a text.
fn tag_end(text: &str, open: char) -> Option<usize> {
    let close = if open == '<' { '>' } else { ']' };
    let within = &text[..text.floor_char_boundary(MAX_TAG_BYTES)];
    let end = within.find(close)?;
    (!within[..end].contains(char::is_whitespace)).then_some(end + 1)
}

/// Returns the text with other letters and digits in its pieces, and of the same size.
pub(super) fn disguised(text: &str) -> String {
    let mut disguised = text.to_owned();
    for piece in pieces(text).into_iter().rev() {
        disguised.replace_range(piece.clone(), &other(&text[piece]));
    }
    disguised
}

/// The most characters of a word that [`disguised_at`] changes.
const MAX_WORD: usize = 8;

/// Returns the text with other characters at this byte: the first ones of the word that starts there, or the last
/// ones of the word that ends there.
pub(super) fn disguised_at(text: &str, byte: usize) -> String {
    let byte = text.floor_char_boundary(byte);
    let is_word = |c: &char| c.is_alphanumeric();
    let size = |characters: &mut dyn Iterator<Item = char>| characters.map(char::len_utf8).sum::<usize>();
    let (before, after) = text.split_at(byte);
    let is_start = !before.chars().next_back().is_some_and(char::is_alphanumeric);
    let start = if is_start { 0 } else { size(&mut before.chars().rev().take_while(is_word).take(MAX_WORD)) };
    let end = size(&mut after.chars().take_while(is_word).take(MAX_WORD)).max(size(&mut after.chars().take(1)));
    let range = byte - start..byte + end;
    format!("{}{}{}", &text[..range.start], other(&text[range.clone()]), &text[range.end..])
}

/// Returns another character of the same size in bytes, so that places in the text stay.
fn other_of_size(c: char) -> char {
    let of_size = match c.len_utf8() {
        2 => ['ä', 'ö'],
        3 => ['中', '字'],
        _ => ['𝐚', '𝐛'],
    };
    if of_size[0] == c { of_size[1] } else { of_size[0] }
}

/// Returns as many other characters, of the same kinds and sizes.
fn other(text: &str) -> String {
    let is_plain = !text.contains(char::is_alphanumeric);
    let other = |c: char| match c {
        'q' => 'z',
        'Q' => 'Z',
        '7' => '3',
        c if c.is_ascii_digit() => '7',
        c if !c.is_ascii() => other_of_size(c),
        c if c.is_uppercase() => 'Q',
        c if c.is_alphanumeric() => 'q',
        c if is_plain && !c.is_whitespace() => {
            if c == '#' {
                '*'
            } else {
                '#'
            }
        }
        c => c,
    };
    text.chars().map(other).collect()
}
