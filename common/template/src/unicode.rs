//! Properties of characters in Python 3.11, which Rust's standard library lacks or defines
//! differently.
//!
//! The tables are those of Unicode 14.

#[rustfmt::skip]
mod entities;
#[rustfmt::skip]
mod tables;

fn is_in(table: &[(u32, u32)], c: char) -> bool {
    let code = u32::from(c);
    let after = table.partition_point(|&(start, _)| start <= code);
    after > 0 && table[after - 1].1 >= code
}

/// Returns true if `repr` prints the character as it is.
pub(crate) fn is_printable(c: char) -> bool {
    if c.is_ascii() { (' '..='~').contains(&c) } else { !is_in(tables::UNPRINTABLE, c) }
}

/// Evaluates `str.isalpha`.
pub(crate) fn is_alpha(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphabetic() } else { is_in(tables::ALPHA, c) }
}

/// Evaluates `str.isdigit`.
pub(crate) fn is_digit(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_digit() } else { is_in(tables::DIGIT, c) }
}

/// Evaluates `str.isnumeric`.
pub(crate) fn is_numeric(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_digit() } else { is_in(tables::NUMERIC, c) }
}

/// Returns the ASCII digit for a decimal digit of any script.
pub(crate) fn decimal(c: char) -> Option<char> {
    if c.is_ascii() {
        return c.is_ascii_digit().then_some(c);
    }
    let code = u32::from(c);
    let after = tables::ZEROS.partition_point(|&zero| zero <= code);
    let zero = *tables::ZEROS.get(after.checked_sub(1)?)?;
    char::from_digit(code - zero, 10).filter(|_| code - zero < 10)
}

/// Evaluates `str.islower` of one character.
pub(crate) fn is_lower(c: char) -> bool {
    c.is_lowercase()
}

/// Evaluates `str.isupper` of one character.
pub(crate) fn is_upper(c: char) -> bool {
    c.is_uppercase()
}

/// Returns true if the character is in title case.
pub(crate) fn is_title(c: char) -> bool {
    !c.is_ascii() && is_in(tables::TITLE, c)
}

/// Returns true if the character is cased.
pub(crate) fn is_cased(c: char) -> bool {
    is_lower(c) || is_upper(c) || is_title(c)
}

/// Returns the title case of a character, which may be several characters.
pub(crate) fn title_case(c: char) -> String {
    match tables::TITLE_CASE.binary_search_by_key(&c, |&(from, _)| from) {
        Ok(at) => tables::TITLE_CASE[at].1.to_owned(),
        Err(_) => c.to_uppercase().collect(),
    }
}

/// Appends the case-folded form of a character.
pub(crate) fn push_case_folded(out: &mut String, c: char) {
    match tables::CASE_FOLDED.binary_search_by_key(&c, |&(from, _)| from) {
        Ok(at) => out.push_str(tables::CASE_FOLDED[at].1),
        Err(_) => out.extend(c.to_lowercase()),
    }
}

/// Returns the characters of a named reference of HTML. The name may end in a semicolon; some names
/// need none.
pub(crate) fn entity(name: &str) -> Option<&'static str> {
    let at = entities::ENTITIES.binary_search_by_key(&name, |&(known, _)| known).ok()?;
    Some(entities::ENTITIES[at].1)
}

/// Returns true if Python's `str.isspace` holds: Unicode white space and four ASCII separators.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::{decimal, is_printable, is_space, title_case};

    #[test]
    fn code_points_newer_than_unicode_14_are_not_printable() {
        assert!(is_printable('\u{0e01}'));
        // Assigned in Unicode 15 and 16.
        assert!(!is_printable('\u{1fae8}'));
        assert!(!is_printable('\u{1c89}'));
    }

    #[test]
    fn four_ascii_separators_are_white_space() {
        assert!(('\x1c'..='\x1f').all(is_space));
        assert!(!is_space('\u{200b}'));
    }

    #[test]
    fn digits_of_any_script_are_decimal() {
        assert_eq!(decimal('\u{0663}'), Some('3'));
        assert_eq!(decimal('\u{00b2}'), None);
    }

    #[test]
    fn a_digraph_has_its_own_title_case() {
        assert_eq!(title_case('\u{01c6}'), "\u{01c5}");
        assert_eq!(title_case('\u{00df}'), "Ss");
    }
}
