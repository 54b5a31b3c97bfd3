//! The table of the fields that engines behind a bridge lack is up to date.
//!
//! With TANDEM_UPDATE_DOCS set, the test writes the table and succeeds: `cargo xtask docs`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{env, fs};

use gen_bridge::protocols::ENGINES;
use tandem_tests::repository;

const PAGE: &str = "gen-svc/bridge/README.md";
const MARKS: [&str; 2] = ["<!-- fields -->\n", "<!-- /fields -->\n"];

/// Returns the table: a row for each problem with a field, and the engines that have it, always or by their settings.
fn table() -> String {
    let mut rows: BTreeMap<(&str, &str), [Vec<String>; 2]> = BTreeMap::new();
    for kind in ENGINES {
        for (column, lacks) in [kind.lacks, kind.lacks_by_settings].into_iter().enumerate() {
            for lack in lacks {
                rows.entry((lack.field, lack.problem)).or_default()[column].push(format!("`{}`", kind.flag));
            }
        }
    }
    let mut table = "| field | problem | always | by settings |\n|---|---|---|---|\n".to_owned();
    for ((field, problem), columns) in rows {
        let [always, by_settings] = columns.map(|engines| engines.join(", "));
        let _ = writeln!(table, "| `{field}` | {problem} | {always} | {by_settings} |");
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
