//! The chart accepts the flags of the programs and the engines of the bridge, and no others.
//!
//! With TANDEM_UPDATE_DOCS set, the test writes the names into the chart's schema and succeeds:
//! `cargo xtask docs`.

use std::collections::BTreeSet;
use std::{env, fs, iter};

use clap::{Command, CommandFactory as _};
use gen_bridge::protocols::ENGINES;
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};
use tandem_tests::repository;

const SCHEMA: &str = "deploy/chart/values.schema.json";
/// The flags with which `serve` serves nothing.
const DRY_RUN: &str = "Dry run";

/// Returns the names of the flags of `serve`, in the order of the alphabet.
fn flags(program: &Command) -> BTreeSet<&str> {
    let serve = program.find_subcommand("serve").expect("the command");
    serve
        .get_arguments()
        .filter(|flag| flag.get_help_heading() != Some(DRY_RUN))
        .filter_map(|flag| flag.get_long())
        .collect()
}

/// Returns the schema as it is stored.
fn text(schema: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b" "));
    schema.serialize(&mut serializer).expect("a schema");
    String::from_utf8(bytes).expect("UTF-8") + "\n"
}

#[test]
fn the_chart_accepts_the_flags_of_the_programs_and_no_others() {
    let path = repository().join(SCHEMA);
    let found = fs::read_to_string(&path).expect("the schema");
    let mut schema: Value = serde_json::from_str(&found).expect("JSON");
    let programs = [
        ("renderFlags", render_svc::args::Args::command()),
        ("generationFlags", gen_svc::args::Args::command()),
        ("bridgeFlags", gen_bridge::args::Args::command()),
    ];
    for (definition, program) in &programs {
        let names = flags(program);
        assert!(names.contains("listen") && names.contains("max-calls") && !names.contains("check"), "{names:?}");
        let properties = names.iter().map(|name| ((*name).to_owned(), json!({"$ref": "#/$defs/flag"})));
        schema["$defs"][definition]["properties"] = Value::Object(properties.collect::<Map<_, _>>());
        assert_eq!(schema["$defs"][definition]["additionalProperties"], false);
    }
    // Without an engine, gen-svc computes.
    let engines: Vec<_> = iter::once("").chain(ENGINES.iter().map(|engine| engine.flag)).collect();
    schema["$defs"]["engine"]["properties"]["kind"]["enum"] = json!(engines);
    let wanted = text(&schema);
    if env::var_os("TANDEM_UPDATE_DOCS").is_some() {
        fs::write(&path, wanted).expect("the schema is writable");
        return;
    }
    assert!(found == wanted, "{SCHEMA} is out of date: run `cargo xtask docs`");
}
