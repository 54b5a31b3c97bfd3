//! The wording of errors, pinned in one place: `tests/golden/error_texts.txt`.
//!
//! A line is `area/case: text`. Tests name the case; a changed wording changes only that file.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use tandem_tests::repository;

static LINES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let path = repository().join("tests/golden/error_texts.txt");
    let file = std::fs::read_to_string(path).expect("the golden file is readable");
    let pair = |line: &str| line.split_once(": ").map(|(case, text)| (case.to_owned(), text.to_owned()));
    file.lines().map(|line| pair(line).unwrap_or_else(|| panic!("not `area/case: text`: {line}"))).collect()
});

/// The golden text of a case.
#[track_caller]
pub(crate) fn golden(case: &str) -> &'static str {
    let found = LINES.iter().find(|(name, _)| name == case);
    found.map_or_else(|| panic!("{case} has no line in tests/golden/error_texts.txt"), |(_, text)| text)
}

/// Compares an error's text with the golden one.
#[track_caller]
pub(crate) fn check(case: &str, found: &str) {
    assert_eq!(found, golden(case), "{case}");
}

#[test]
fn every_case_has_one_text() {
    let mut cases = BTreeMap::new();
    for (case, text) in LINES.iter() {
        assert_eq!(cases.insert(case, text), None, "{case} occurs twice");
        assert!(case.contains('/') && !text.trim().is_empty(), "{case}: {text}");
    }
}
