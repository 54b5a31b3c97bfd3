//! Sets of characters, with the contents that Python's `regex` module gives them.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

use super::tables::{ALPHABETIC, CASES, CATEGORIES, LOWERCASE, UPPERCASE, WORDS};

const MAX_CODE: u32 = 0x10_ffff;
/// The general categories, by their short names. A name of one letter means all that start with it.
const CATEGORY_NAMES: &[&str] = &[
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
    "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "L", "M", "N", "P", "S", "Z",
];

/// A set of code points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CharSet {
    /// Sorted, and apart from each other.
    ranges: Vec<(u32, u32)>,
    /// The members below 128, as bits.
    ascii: u128,
}

impl CharSet {
    fn new(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match merged.last_mut() {
                Some((_, last)) if start <= last.saturating_add(1) => *last = (*last).max(end),
                _ => merged.push((start, end)),
            }
        }
        let has = |code: &u32| merged.iter().any(|(start, end)| start <= code && code <= end);
        let ascii = (0..128).filter(has).fold(0, |bits, code| bits | 1_u128 << code);
        Self { ranges: merged, ascii }
    }

    pub(super) fn one(code: u32) -> Self {
        Self::new(vec![(code, code)])
    }

    pub(super) fn range(start: u32, end: u32) -> Self {
        Self::new(vec![(start, end)])
    }

    pub(super) fn all() -> Self {
        Self::range(0, MAX_CODE)
    }

    pub(super) fn none() -> Self {
        Self::new(Vec::new())
    }

    pub(super) fn words() -> Self {
        let mut ranges = unicode(r"\w").ranges;
        ranges.extend(WORDS);
        Self::new(ranges)
    }

    pub(super) fn digits() -> Self {
        Self::category("Nd").unwrap_or_else(Self::none)
    }

    pub(super) fn spaces() -> Self {
        unicode(r"\s")
    }

    /// Returns the code points of a general category, or None for other properties.
    pub(super) fn category(name: &str) -> Option<Self> {
        let name: String = name.chars().filter(|c| !"_- ".contains(*c)).collect();
        let name = CATEGORY_NAMES.iter().find(|known| known.eq_ignore_ascii_case(&name))?;
        let elsewhere = Self::new(CATEGORIES.iter().map(|(start, end, _)| (*start, *end)).collect());
        let here = CATEGORIES.iter().filter(|(_, _, category)| category.starts_with(name));
        let mut ranges = unicode(&format!(r"\p{{{name}}}")).and(&elsewhere.negated()).ranges;
        ranges.extend(here.map(|(start, end, _)| (*start, *end)));
        Some(Self::new(ranges))
    }

    pub(super) fn posix(class: Posix) -> Self {
        let digits = || Self::range('0'.into(), '9'.into());
        let letters = |start: char, end: char| Self::range(start.into(), end.into());
        match class {
            Posix::Alpha => toggled(r"\p{Alphabetic}", ALPHABETIC),
            Posix::Upper => toggled(r"\p{Uppercase}", UPPERCASE),
            Posix::Lower => toggled(r"\p{Lowercase}", LOWERCASE),
            Posix::Alnum => toggled(r"\p{Alphabetic}", ALPHABETIC).or(digits()),
            Posix::Digit => digits(),
            Posix::HexDigit => digits().or(letters('a', 'f')).or(letters('A', 'F')),
            Posix::Space => Self::spaces(),
            Posix::Word => Self::words(),
            Posix::Control => unicode(r"\p{Cc}"),
            Posix::Blank => unicode(r"\p{Zs}").or(Self::one(9)),
        }
    }

    pub(super) fn or(mut self, other: Self) -> Self {
        self.ranges.extend(other.ranges);
        Self::new(self.ranges)
    }

    fn and(&self, other: &Self) -> Self {
        self.negated().or(other.negated()).negated()
    }

    pub(super) fn negated(&self) -> Self {
        let (mut ranges, mut next) = (Vec::new(), 0);
        for (start, end) in &self.ranges {
            if next < *start {
                ranges.push((next, start - 1));
            }
            next = end + 1;
        }
        if next <= MAX_CODE {
            ranges.push((next, MAX_CODE));
        }
        Self::new(ranges)
    }

    /// Returns the characters that equal a member without regard to case.
    pub(super) fn in_any_case(&self) -> Self {
        let ranges = self.ranges.iter().flat_map(|(start, end)| scalar_ranges(*start, *end));
        let mut folded = ClassUnicode::new(ranges.map(|(start, end)| ClassUnicodeRange::new(start, end)));
        // The tables are those of regex-syntax itself, so its only error cannot occur.
        let _ = folded.try_case_fold_simple();
        let mut ranges: Vec<_> =
            folded.ranges().iter().map(|range| (range.start().into(), range.end().into())).collect();
        for pair in CASES.iter().flat_map(|(a, b, count)| (0..*count).map(move |step| (a + step, b + step))) {
            ranges.extend(self.has_code(pair.0).then_some((pair.1, pair.1)));
            ranges.extend(self.has_code(pair.1).then_some((pair.0, pair.0)));
        }
        Self::new(ranges)
    }

    /// Returns the only member, or None if there are none or several.
    pub(super) fn only(&self) -> Option<char> {
        match self.ranges.as_slice() {
            [(start, end)] if start == end => char::from_u32(*start),
            _ => None,
        }
    }

    pub(super) fn has(&self, c: char) -> bool {
        let code = u32::from(c);
        if code < 128 { self.ascii >> code & 1 == 1 } else { self.has_code(code) }
    }

    fn has_code(&self, code: u32) -> bool {
        let at = self.ranges.partition_point(|(_, end)| *end < code);
        self.ranges.get(at).is_some_and(|(start, _)| *start <= code)
    }
}

/// A class of POSIX, such as `[:alpha:]`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Posix {
    Alpha,
    Upper,
    Lower,
    Alnum,
    Digit,
    HexDigit,
    Space,
    Word,
    Control,
    Blank,
}

impl Posix {
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "alpha" => Self::Alpha,
            "upper" => Self::Upper,
            "lower" => Self::Lower,
            "alnum" => Self::Alnum,
            "digit" => Self::Digit,
            "xdigit" => Self::HexDigit,
            "space" => Self::Space,
            "word" => Self::Word,
            "cntrl" => Self::Control,
            "blank" => Self::Blank,
            _ => return None,
        })
    }
}

/// Returns true if Python takes the name for an identifier.
pub(super) fn is_identifier(name: &str) -> bool {
    let (start, part) = (unicode(r"\p{XID_Start}"), unicode(r"\p{XID_Continue}"));
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c == '_' || start.has(c)) && chars.all(|c| part.has(c))
}

/// Returns a class of regex-syntax.
fn unicode(class: &str) -> CharSet {
    match regex_syntax::parse(class).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => {
            CharSet::new(class.ranges().iter().map(|range| (range.start().into(), range.end().into())).collect())
        }
        // A class of one character.
        Ok(HirKind::Literal(literal)) => {
            let chars = std::str::from_utf8(&literal.0).unwrap_or_default().chars();
            CharSet::new(chars.map(|c| (c.into(), c.into())).collect())
        }
        _ => CharSet::none(),
    }
}

/// Returns a class of regex-syntax with other code points in these ranges.
fn toggled(class: &str, ranges: &[(u32, u32)]) -> CharSet {
    let (class, toggled) = (unicode(class), CharSet::new(ranges.to_vec()));
    class.and(&toggled.negated()).or(toggled.and(&class.negated()))
}

/// Returns the parts of a range that are characters: all but surrogates.
fn scalar_ranges(start: u32, end: u32) -> impl Iterator<Item = (char, char)> {
    let parts = [(start, end.min(0xd7ff)), (start.max(0xe000), end)];
    parts.into_iter().filter_map(|(start, end)| {
        let chars = (char::from_u32(start)?, char::from_u32(end)?);
        (start <= end).then_some(chars)
    })
}
