//! Taint marks the characters of a prompt that come from the conversation.
//!
//! The tainted form of a character is the character at a fixed distance above it in Unicode. A
//! render with a taint reads every tainted character as its original: texts are compared, searched
//! and measured as if nothing were tainted. If a text is cut, joined or rewritten, each character
//! keeps its taint. Without a taint, an operation only checks whether a text has tainted
//! characters.
//!
//! The taint of the running render is a thread-local ([`TaintScope`]), not a parameter. Text is
//! compared at the leaves of nearly every operation: dict lookup, equality, hashing, sorting,
//! slicing and every method of `str`. A parameter would change the signatures of all these
//! functions and of the compiled program's function pointers. It would also be passed on every step
//! of templates that use no taint. The scope is entered once per render, and a render never leaves
//! its thread.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::iter;
use std::ops::Range;

use serde_json::{Map, Value as Json};

use crate::budget;
use crate::error::Fallible;
use crate::text_buffer::Sink;

/// The number of characters that can be tainted: Unicode's planes 0 to 3.
const SPAN: u32 = 0x4_0000;

/// A way to taint characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taint {
    /// The distance from a character to its tainted form, a multiple of [`SPAN`].
    distance: u32,
}

impl Taint {
    /// All taints. No tainted character belongs to two taints. Unicode assigns no characters to the
    /// planes of the first two.
    pub const ALL: [Self; 3] = [Self { distance: SPAN }, Self { distance: 2 * SPAN }, Self { distance: 3 * SPAN }];

    /// Returns a taint whose characters do not occur in the values. None if all of them do.
    pub fn unused_in<'v>(values: impl Iterator<Item = &'v Json> + Clone) -> Option<Self> {
        Self::ALL.into_iter().find(|taint| !values.clone().any(|value| taint.occurs_in(value)))
    }

    fn occurs_in(self, value: &Json) -> bool {
        match value {
            Json::String(text) => self.is_in(text),
            Json::Array(items) => items.iter().any(|item| self.occurs_in(item)),
            Json::Object(object) => object.iter().any(|(key, value)| self.is_in(key) || self.occurs_in(value)),
            _ => false,
        }
    }

    /// Returns the tainted form of a character. Characters above plane 3 are unchanged.
    #[must_use]
    pub fn taint_char(self, c: char) -> char {
        let code = u32::from(c);
        if code < SPAN { char::from_u32(code + self.distance).unwrap_or(c) } else { c }
    }

    /// Returns the original of a tainted character, or the character itself.
    #[must_use]
    pub fn strip_char(self, c: char) -> char {
        let code = u32::from(c) ^ self.distance;
        if code < SPAN { char::from_u32(code).unwrap_or(c) } else { c }
    }

    /// Returns true if the text has tainted characters.
    #[must_use]
    pub fn is_in(self, text: &str) -> bool {
        // In UTF-8, exactly the tainted characters start with this byte.
        let lead = 0xF0 + (self.distance / SPAN) as u8;
        text.as_bytes().contains(&lead)
    }

    /// Returns the text with every character tainted.
    #[must_use]
    pub fn taint_text(self, text: &str) -> String {
        text.chars().map(|c| self.taint_char(c)).collect()
    }

    /// Returns the text without taint.
    #[must_use]
    pub fn strip(self, text: &str) -> Cow<'_, str> {
        if self.is_in(text) { text.chars().map(|c| self.strip_char(c)).collect() } else { text.into() }
    }

    /// Returns the runs of a text: its longest parts that are tainted as a whole or not at all. The
    /// flag is true for a tainted run.
    pub fn runs(self, text: &str) -> impl Iterator<Item = (bool, &str)> {
        let is_tainted = move |c: char| self.strip_char(c) != c;
        let mut rest = text;
        iter::from_fn(move || {
            let tainted = is_tainted(rest.chars().next()?);
            let end = rest.find(|c| is_tainted(c) != tainted).unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            rest = after;
            Some((tainted, run))
        })
    }

    /// Returns the parts that `cut` finds in the stripped text, each with its taint.
    ///
    /// # Errors
    /// Fails with the errors of `cut`.
    pub fn cut<'t, E>(
        self,
        text: &'t str,
        cut: impl for<'p> FnOnce(&'p str) -> Result<Vec<&'p str>, E>,
    ) -> Result<Vec<&'t str>, E> {
        let stripped = self.strip(text);
        let offsets = offsets(&stripped, text);
        let start = stripped.as_ptr().addr();
        let part = |part: &str| {
            let at = part.as_ptr().addr() - start;
            &text[offsets[at]..offsets[at + part.len()]]
        };
        Ok(cut(&stripped)?.into_iter().map(part).collect())
    }

    /// Returns a JSON object with every key and every text in it tainted.
    #[must_use]
    pub fn taint_object(self, object: Map<String, Json>) -> Map<String, Json> {
        object.into_iter().map(|(key, value)| (self.taint_text(&key), self.taint_json(value))).collect()
    }

    /// Returns a JSON value with every key and every text in it tainted.
    #[must_use]
    pub fn taint_json(self, value: Json) -> Json {
        match value {
            Json::String(text) => Json::String(self.taint_text(&text)),
            Json::Array(items) => items.into_iter().map(|item| self.taint_json(item)).collect(),
            Json::Object(object) => Json::Object(self.taint_object(object)),
            other => other,
        }
    }

    fn stripped_chars(self, text: &str) -> impl DoubleEndedIterator<Item = char> {
        text.chars().map(move |c| self.strip_char(c))
    }
}

/// A rendering without its taint.
#[derive(Debug, Default)]
pub struct Stripped {
    /// The text without taint.
    pub text: String,
    /// The tainted parts, in order.
    parts: Vec<Range<usize>>,
}

impl Stripped {
    /// Strips the taint of a text.
    #[must_use]
    pub fn of(rendered: &str, taint: Taint) -> Self {
        let mut stripped = Self::default();
        for (is_tainted, run) in taint.runs(rendered) {
            let start = stripped.text.len();
            stripped.text.push_str(&taint.strip(run));
            if is_tainted {
                stripped.parts.push(start..stripped.text.len());
            }
        }
        stripped
    }

    /// Returns true if characters of this range were tainted.
    #[must_use]
    pub fn is_tainted(&self, range: &Range<usize>) -> bool {
        let next = self.parts.partition_point(|part| part.end <= range.start);
        self.parts.get(next).is_some_and(|part| part.start < range.end)
    }
}

/// Returns, for every byte of `stripped` and for its end, the offset of its character in `text`.
fn offsets(stripped: &str, text: &str) -> Vec<usize> {
    let mut offsets = Vec::with_capacity(stripped.len() + 1);
    for (c, (at, _)) in stripped.chars().zip(text.char_indices()) {
        offsets.extend(iter::repeat_n(at, c.len_utf8()));
    }
    offsets.push(text.len());
    offsets
}

thread_local! {
    static IN_USE: Cell<Option<Taint>> = const { Cell::new(None) };
}

/// The scope in which this thread reads a taint. Dropping the scope restores the previous taint.
#[derive(Debug)]
pub struct TaintScope {
    before: Option<Taint>,
}

impl TaintScope {
    /// Enters a scope with this taint, or without a taint.
    #[must_use]
    pub fn start(taint: Option<Taint>) -> Self {
        Self { before: IN_USE.replace(taint) }
    }
}

impl Drop for TaintScope {
    fn drop(&mut self) {
        IN_USE.set(self.before);
    }
}

/// Returns the taint in use if the text has it.
#[must_use]
pub fn of(text: &str) -> Option<Taint> {
    IN_USE.get().filter(|taint| taint.is_in(text))
}

/// Returns the text without taint.
#[must_use]
pub fn strip(text: &str) -> Cow<'_, str> {
    let Some(taint) = of(text) else {
        return Cow::Borrowed(text);
    };
    budget::walked(text.len());
    taint.strip(text)
}

/// Parses the JSON text of an object. If the text has tainted characters, all texts of the result
/// have them too.
#[must_use]
pub fn parse_object(text: &str) -> Option<Map<String, Json>> {
    let object = serde_json::from_str(&strip(text)).ok()?;
    Some(match of(text) {
        Some(taint) => taint.taint_object(object),
        None => object,
    })
}

/// Returns the character without taint.
#[must_use]
pub fn strip_char(c: char) -> char {
    IN_USE.get().map_or(c, |taint| taint.strip_char(c))
}

/// Returns true if two texts are equal without taint.
pub(crate) fn same(left: &str, right: &str) -> bool {
    left == right || IN_USE.get().is_some_and(|taint| same_without(taint, left, right))
}

fn same_without(taint: Taint, left: &str, right: &str) -> bool {
    budget::walked(left.len().min(right.len()));
    taint.stripped_chars(left).eq(taint.stripped_chars(right))
}

/// Compares two texts without taint.
pub(crate) fn order(left: &str, right: &str) -> Ordering {
    let Some(taint) = IN_USE.get() else {
        return left.cmp(right);
    };
    budget::walked(left.len().min(right.len()));
    taint.stripped_chars(left).cmp(taint.stripped_chars(right))
}

/// Returns the offset after this prefix if the text starts with the prefix.
pub(crate) fn after_prefix(text: &str, prefix: &str) -> Option<usize> {
    let Some(taint) = IN_USE.get() else {
        return text.starts_with(prefix).then_some(prefix.len());
    };
    let mut rest = text.chars();
    let starts = taint.stripped_chars(prefix).all(|wanted| rest.next().is_some_and(|c| taint.strip_char(c) == wanted));
    starts.then(|| text.len() - rest.as_str().len())
}

/// Returns the offset of this suffix if the text ends with the suffix.
pub(crate) fn before_suffix(text: &str, suffix: &str) -> Option<usize> {
    let Some(taint) = IN_USE.get() else {
        return text.ends_with(suffix).then(|| text.len() - suffix.len());
    };
    let mut rest = text.chars();
    let is_next = |wanted| rest.next_back().is_some_and(|c| taint.strip_char(c) == wanted);
    let ends = taint.stripped_chars(suffix).rev().all(is_next);
    ends.then_some(rest.as_str().len())
}

/// Returns the parts that `cut` finds in the stripped text, each with its taint.
pub(crate) fn cut<'t>(
    text: &'t str,
    cut: impl for<'p> FnOnce(&'p str) -> Fallible<Vec<&'p str>>,
) -> Fallible<Vec<&'t str>> {
    let Some(taint) = of(text) else {
        return cut(text);
    };
    budget::walk(text.len())?;
    taint.cut(text, cut)
}

/// Rewrites the stripped text and keeps the taint.
///
/// If the result has as many characters as the text, each character keeps its taint. Otherwise
/// every run is rewritten separately. `rewrite` may replace one character by several characters,
/// but not several characters by one.
pub fn rewrite(text: &str, rewrite: impl Fn(&str) -> String) -> String {
    let Some(taint) = of(text) else {
        return rewrite(text);
    };
    let rewritten = rewrite(&taint.strip(text));
    if rewritten.chars().count() != text.chars().count() {
        return rewrite_runs(taint, text, rewrite);
    }
    let pairs = text.chars().zip(rewritten.chars());
    pairs.map(|(old, new)| if taint.strip_char(old) == old { new } else { taint.taint_char(new) }).collect()
}

fn rewrite_runs(taint: Taint, text: &str, rewrite: impl Fn(&str) -> String) -> String {
    let rewritten = taint
        .runs(text)
        .map(|(is_tainted, run)| if is_tainted { taint.taint_text(&rewrite(&taint.strip(run))) } else { rewrite(run) });
    rewritten.collect()
}

/// Taints all of `made` if its source text has tainted characters.
#[must_use]
pub fn with_taint_of(text: &str, made: String) -> String {
    match of(text) {
        Some(taint) => taint.taint_text(&made),
        None => made,
    }
}

/// Appends the output of `write` for the stripped text, and taints its output for tainted runs.
pub(crate) fn append(out: &mut String, text: &str, mut append: impl FnMut(&mut String, &str)) {
    let Ok(()) = write(out, text, |out, run| {
        append(out, run);
        Ok(())
    });
}

/// Writes the stripped text through `write`, and taints what `write` makes of tainted runs.
pub(crate) fn write<S: Sink>(
    out: &mut S,
    text: &str,
    mut write: impl FnMut(&mut S, &str) -> Result<(), S::Error>,
) -> Result<(), S::Error> {
    let Some(taint) = of(text) else {
        return write(out, text);
    };
    for (is_tainted, run) in taint.runs(text) {
        if is_tainted {
            let mut written = S::default();
            write(&mut written, &taint.strip(run))?;
            out.push(&taint.taint_text(&written.finish()))?;
        } else {
            write(out, run)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Taint, TaintScope, after_prefix, before_suffix, cut, rewrite, same, with_taint_of};
    use crate::budget::Meter;
    use crate::limits::Limits;

    const TAINT: Taint = Taint::ALL[0];

    fn tainted(text: &str) -> String {
        TAINT.taint_text(text)
    }

    #[test]
    fn strip_restores_the_untainted_text() {
        for taint in Taint::ALL {
            let text = taint.taint_text("aé漢🫨");
            assert!(taint.is_in(&text));
            assert_eq!(taint.strip(&text), "aé漢🫨");
        }
    }

    #[test]
    fn runs_split_text_at_taint_boundaries() {
        let text = format!("ab{}d", tainted("c"));
        let runs: Vec<_> = TAINT.runs(&text).collect();
        assert_eq!(runs, [(false, "ab"), (true, &*tainted("c")), (false, "d")]);
    }

    #[test]
    fn texts_are_compared_without_taint() {
        let _scope = TaintScope::start(Some(TAINT));
        let text = format!("a{}", tainted("bc"));
        assert!(same(&text, "abc"));
        assert_eq!(after_prefix(&text, "ab"), Some(5));
        assert_eq!(before_suffix(&text, "bc"), Some(1));
    }

    #[test]
    fn parts_and_rewritten_texts_keep_their_taint() {
        let _meter = Meter::start(&Limits::default());
        let _scope = TaintScope::start(Some(TAINT));
        let text = format!("a {}", tainted("b c"));
        let words = cut(&text, |text| Ok(text.split(' ').collect())).unwrap_or_default();
        assert_eq!(words, ["a", &*tainted("b"), &*tainted("c")]);
        assert_eq!(rewrite(&text, str::to_uppercase), format!("A {}", tainted("B C")));
        assert_eq!(rewrite(&tainted("ß"), str::to_uppercase), tainted("SS"));
        assert_eq!(with_taint_of(&text, "x".to_owned()), tainted("x"));
    }

    #[test]
    fn text_is_untainted_outside_a_taint_scope() {
        let text = tainted("a");
        assert!(!same(&text, "a"));
        assert_eq!(with_taint_of(&text, "x".to_owned()), "x");
    }
}
