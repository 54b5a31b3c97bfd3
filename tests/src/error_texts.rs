//! The wording of errors, pinned in one place: `tests/golden/error_texts.txt`.
//!
//! A line is `area/case: text`. Tests name the case, so that a changed wording changes only that
//! file.

use std::sync::LazyLock;

use crate::files::repository;

static LINES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let path = repository().join("tests/golden/error_texts.txt");
    let file = std::fs::read_to_string(path).expect("the golden file is readable");
    let pair = |line: &str| line.split_once(": ").map(|(case, text)| (case.to_owned(), text.to_owned()));
    file.lines().map(|line| pair(line).unwrap_or_else(|| panic!("not `area/case: text`: {line}"))).collect()
});

/// Returns the golden text of a case.
///
/// # Panics
/// If the file has no such case.
#[track_caller]
#[must_use]
pub fn golden(case: &str) -> &'static str {
    let found = LINES.iter().find(|(name, _)| name == case);
    found.map_or_else(|| panic!("{case} has no line in tests/golden/error_texts.txt"), |(_, text)| text)
}

/// Compares an error's text with the golden text of a case.
///
/// # Panics
/// If they differ.
#[track_caller]
pub fn check(case: &str, found: &str) {
    assert_eq!(found, golden(case), "{case}");
}

/// Returns every case with its text, in the order of the file.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    LINES.iter().map(|(case, text)| (case.as_str(), text.as_str()))
}
