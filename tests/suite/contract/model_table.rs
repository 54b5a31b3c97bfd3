//! The table of models in README.md names the architectures that gen-svc loads, and no others.

use std::collections::BTreeSet;

use tandem_core::models::architectures;
use tandem_tests::repository;

/// Returns the `model_type`s of a row, and true if the row says that gen-svc generates.
fn row(line: &str) -> Option<(Vec<&str>, bool)> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [family, _prompts, _tools, generates, _images] = cells[..] else { return None };
    let names = family.split('`').skip(1).step_by(2).collect();
    Some((names, generates.starts_with("yes")))
}

#[test]
fn the_table_of_models_has_every_architecture_and_no_other() {
    let text = std::fs::read_to_string(repository().join("README.md")).expect("the page");
    let (_, section) = text.split_once("### Which models").expect("the section");
    let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows: Vec<_> = rows.map_while(|line| line.starts_with('|').then(|| row(line).expect("five columns"))).collect();
    let of = |wanted: bool| rows.iter().filter(move |(_, generates)| *generates == wanted).flat_map(|(names, _)| names);
    let known: BTreeSet<&str> = architectures::names().collect();
    // A name that ends so is the language model of another architecture.
    let whole: BTreeSet<&str> = known.iter().copied().filter(|name| !name.ends_with("_text")).collect();
    assert_eq!(of(true).copied().collect::<BTreeSet<_>>(), whole);
    assert_eq!(of(false).copied().filter(|name| known.contains(name)).collect::<Vec<_>>(), Vec::<&str>::new());
}
