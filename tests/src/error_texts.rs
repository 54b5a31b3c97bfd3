//! The wording of errors, of warnings and of the reasons for an adapter, pinned in one place:
//! `tests/golden/error_texts.txt`.
//!
//! A line is `area/case: text`. Tests name the case, so that a changed wording changes only that
//! file. They compare the reason, the code and the field themselves.
//!
//! Some wording is not the project's own. It is the texts of Jinja2, Python and transformers, which
//! the template engine must reproduce, and the messages that a chat template raises. Tests compare
//! these in place with the reference's text.
//!
//! ADAPTERS replaces the list of all adapters.
//!
//! With TANDEM_UPDATE_ERROR_TEXTS set, every check writes its text into the file and succeeds.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Mutex;

use render_svc::adapters::Registry;

use crate::files::repository;

/// The texts by case. An update changes the file and this table together.
static TEXTS: Mutex<Option<BTreeMap<String, String>>> = Mutex::new(None);

/// Compares a text with the golden text of a case.
///
/// # Panics
/// If they differ, or the case has no text.
#[track_caller]
pub fn check(case: &str, found: impl Display) {
    let found = one_line(&found.to_string()).replace(&adapter_names(), "ADAPTERS");
    let expected = with_texts(|texts| {
        if is_update() && texts.get(case) != Some(&found) {
            texts.insert(case.to_owned(), found.clone());
            write(texts);
        }
        texts.get(case).cloned()
    });
    assert_eq!(Some(found), expected, "{case} in {}", path().display());
}

/// Compares texts with the golden texts of a case's rows: `case/01`, `case/02` and so on.
///
/// # Panics
/// If a text differs, or the case has more or fewer rows.
#[track_caller]
pub fn check_rows<T: Display>(case: &str, found: impl IntoIterator<Item = T>) {
    let mut rows = 0;
    for text in found {
        rows += 1;
        check(&row(case, rows), text);
    }
    assert!(rows > 0, "{case}: no texts to compare");
    let next = row(case, rows + 1);
    assert!(!with_texts(|texts| texts.contains_key(&next)), "{next} is not produced by the test");
}

/// Returns every case with its text, in the order of the file.
#[must_use]
pub fn all() -> Vec<(String, String)> {
    read()
}

fn row(case: &str, number: usize) -> String {
    format!("{case}/{number:02}")
}

fn is_update() -> bool {
    std::env::var_os("TANDEM_UPDATE_ERROR_TEXTS").is_some()
}

fn with_texts<T>(run: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> T {
    let mut texts = TEXTS.lock().expect("the golden file was read before");
    run(texts.get_or_insert_with(|| read().into_iter().collect()))
}

fn path() -> PathBuf {
    repository().join("tests/golden/error_texts.txt")
}

fn read() -> Vec<(String, String)> {
    let file = std::fs::read_to_string(path()).expect("the golden file is readable");
    let pair = |line: &str| line.split_once(": ").map(|(case, text)| (case.to_owned(), text.to_owned()));
    file.lines().map(|line| pair(line).unwrap_or_else(|| panic!("not `area/case: text`: {line}"))).collect()
}

fn write(texts: &BTreeMap<String, String>) {
    let lines: String = texts.iter().map(|(case, text)| format!("{case}: {text}\n")).collect();
    std::fs::write(path(), lines).expect("the golden file is writable");
}

/// Returns the list of all adapters as errors have it, so that a new adapter changes no text.
fn adapter_names() -> String {
    let registry = Registry::default();
    let names: Vec<_> = registry.adapters().iter().map(|adapter| adapter.name).collect();
    names.join(", ")
}

fn one_line(text: &str) -> String {
    text.replace('\n', "\\n")
}
