//! The table of models in README.md names the architectures of text that gen-svc loads, and the table of
//! families in IMAGES.md those with images. Neither has others.

use std::collections::BTreeSet;

use tandem_core::models::architectures;
use tandem_core::models::vision::families::FAMILIES;
use tandem_tests::repository;

/// Returns the `model_type`s of a row, and true if the row says that gen-svc generates.
fn row(line: &str) -> Option<(Vec<&str>, bool)> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [family, _prompts, _tools, generates, _images] = cells[..] else { return None };
    let names = family.split('`').skip(1).step_by(2).collect();
    Some((names, generates.starts_with("yes")))
}

/// Returns the `model_type`s of the families with images.
fn with_images() -> BTreeSet<&'static str> {
    FAMILIES.iter().flat_map(|family| family.names).copied().collect()
}

#[test]
fn the_table_of_families_with_images_has_every_family_and_no_other() {
    let text = std::fs::read_to_string(repository().join("gen-svc/IMAGES.md")).expect("the page");
    let (_, section) = text.split_once("## Families").expect("the section");
    let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|')).map(|line| line.split('|').nth(1).expect("a name"));
    let names: BTreeSet<&str> = rows.flat_map(|names| names.split(',')).map(str::trim).collect();
    assert_eq!(names, with_images());
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
    let is_of_text = |name: &&str| !name.ends_with("_text") && !with_images().contains(name);
    let of_text: BTreeSet<&str> = known.iter().copied().filter(is_of_text).collect();
    assert_eq!(of(true).copied().filter(|name| !with_images().contains(name)).collect::<BTreeSet<_>>(), of_text);
    assert_eq!(of(false).copied().filter(|name| known.contains(name)).collect::<Vec<_>>(), Vec::<&str>::new());
}
