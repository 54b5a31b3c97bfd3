//! The table of the fields that engines behind a bridge lack is up to date.
//!
//! With TANDEM_UPDATE_DOCS set, the test writes the table and succeeds: `cargo xtask docs`.

use std::fmt::Write as _;
use std::{env, fs, iter};

use gen_bridge::kind::EngineKind;
use gen_bridge::protocols::ENGINES;
use tandem_tests::repository;

const PAGE: &str = "gen-svc/bridge/README.md";
const MARKS: [&str; 2] = ["<!-- fields -->\n", "<!-- /fields -->\n"];

/// Returns the table: a row for each field, a column for each engine.
fn table() -> String {
    let lacks = |kind: &&'static EngineKind| kind.lacks.iter().chain(kind.lacks_by_settings);
    let mut fields: Vec<&str> = ENGINES.iter().flat_map(lacks).map(|lack| lack.field).collect();
    fields.sort_unstable();
    fields.dedup();
    let cell = |kind: &&'static EngineKind, field: &str| {
        let lack = lacks(kind).find(|lack| lack.field == field);
        lack.map_or_else(|| "yes".to_owned(), |lack| lack.problem.to_owned())
    };
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let head = iter::once("field".to_owned()).chain(ENGINES.iter().map(|kind| format!("`{}`", kind.flag)));
    let mut table = row(head.collect()) + &"|---".repeat(ENGINES.len() + 1) + "|\n";
    for field in fields {
        let cells = ENGINES.iter().map(|kind| cell(kind, field));
        let _ = write!(table, "{}", row(iter::once(format!("`{field}`")).chain(cells).collect()));
    }
    table
}

#[test]
fn the_table_of_the_fields_that_engines_lack_is_up_to_date() {
    let path = repository().join(PAGE);
    let page = fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(MARKS[0]).expect("a mark");
    let (_, after) = rest.split_once(MARKS[1]).expect("a mark");
    let wanted = [before, MARKS[0], &table(), MARKS[1], after].concat();
    if env::var_os("TANDEM_UPDATE_DOCS").is_some() {
        fs::write(&path, wanted).expect("the page is writable");
        return;
    }
    assert!(page == wanted, "{PAGE} is out of date: run `cargo xtask docs`");
}
