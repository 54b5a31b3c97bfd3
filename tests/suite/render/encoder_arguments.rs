//! The arguments that GetModel lists where no chat template renders: those of a family's encoder, as the
//! makers' encoders read them, and none for a format.

use std::fs;

use render_svc::adapters::Registry;
use render_svc::catalog::{ModelCatalog, ServedModel, Sources, facts};
use render_svc::fact::FactSource;
use serde_json::{Value, json};
use tandem_tests::ModelFolder;

/// A template with an argument that no encoder reads.
const OTHER: &str = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '!' if shouts else '' }}";

/// Returns each argument with its values and its default.
fn listed(served: &ServedModel) -> Vec<(String, Value, Option<Value>, FactSource)> {
    let arguments = facts::arguments(served).into_iter();
    arguments.map(|(found, source)| (found.name, found.values.into(), found.default, source)).collect()
}

#[track_caller]
fn check(folder: &ModelFolder, expected: &[(&str, Value, Option<Value>)]) {
    let served = ServedModel::load(&folder.path()).expect("the model loads");
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, values, default)| ((*name).to_owned(), values.clone(), default.clone(), FactSource::Adapter))
        .collect();
    assert_eq!(listed(&served), expected);
}

fn booleans() -> Value {
    json!([false, true])
}

/// The official encoder: `thinking_mode` is `chat` or `thinking`, bos is added by default, earlier
/// messages of `context` are not written. `drop_thinking` is true if the last message is the user's.
#[test]
fn arguments_of_deepseek_v3_2_are_those_of_its_encoder() {
    let expected = [
        ("add_default_bos_token", booleans(), Some(json!(true))),
        ("context", json!([]), None),
        ("drop_thinking", booleans(), None),
        ("enable_thinking", booleans(), Some(json!(false))),
        ("thinking", booleans(), Some(json!(false))),
        ("thinking_mode", json!(["chat", "thinking"]), Some(json!("chat"))),
    ];
    check(&ModelFolder::new("tiny").with_architecture("deepseek_v32"), &expected);
    check(&ModelFolder::new("tiny").with_architecture("deepseek_v32").with_template(OTHER), &expected);
}

/// The efforts are those of the two official encoders: see `deepseek_revisions.rs`.
#[test]
fn arguments_of_deepseek_v4_are_those_of_its_revision() {
    let of = |efforts: Value, default: &str| {
        [
            ("add_default_bos_token", booleans(), Some(json!(true))),
            ("context", json!([]), None),
            ("drop_thinking", booleans(), Some(json!(true))),
            ("enable_thinking", booleans(), Some(json!(false))),
            ("reasoning_effort", efforts, Some(json!(default))),
            ("thinking", booleans(), Some(json!(false))),
            ("thinking_mode", json!(["chat", "thinking"]), Some(json!("chat"))),
        ]
    };
    let folder = ModelFolder::new("tiny").with_architecture("deepseek_v4").with_template(OTHER);
    check(&folder, &of(json!(["low", "high", "max"]), "low"));
    let encoding = folder.path().join("encoding");
    fs::create_dir(&encoding).expect("a folder");
    let preview = "REASONING_EFFORT_MAX = 'Reasoning Effort: Absolute maximum'\n";
    fs::write(encoding.join("encoding_dsv4.py"), preview).expect("a file");
    check(&folder, &of(json!(["high", "max"]), "high"));
}

/// Google's template reads both with a default of false.
#[test]
fn arguments_of_gemma_4_are_those_of_its_template() {
    let expected =
        [("enable_thinking", booleans(), Some(json!(false))), ("preserve_thinking", booleans(), Some(json!(false)))];
    check(&ModelFolder::new("tiny").with_architecture("gemma4"), &expected);
}

#[test]
fn a_format_has_no_arguments() {
    check(&ModelFolder::new("qwen"), &[]);
}

fn configured(folder: &ModelFolder, settings: &str) -> ModelCatalog {
    let path = folder.path();
    let config = path.parent().expect("a parent").join("models.toml");
    fs::write(&config, format!("[[models]]\npath = {path:?}\n{settings}\n")).expect("a file");
    let sources = Sources { config: Some(config), ..Sources::default() };
    ModelCatalog::open(sources, Registry::default()).expect("a catalog")
}

#[test]
fn a_configured_argument_replaces_the_default_where_the_adapter_reads_it() {
    let settings = "toggles = { thinking = true, shouts = true }";
    let arguments = |folder: &ModelFolder, settings: &str| {
        let catalog = configured(folder, settings);
        let models = catalog.models();
        let listed = listed(models.get("").expect("the only model"));
        let of_configuration = listed.into_iter().filter(|(_, _, _, source)| *source == FactSource::Configuration);
        of_configuration.map(|(name, values, default, _)| (name, values, default)).collect::<Vec<_>>()
    };
    let family = ModelFolder::new("tiny").with_architecture("deepseek_v4");
    assert_eq!(arguments(&family, settings), [("thinking".to_owned(), booleans(), Some(json!(true)))]);
    let template = ModelFolder::new("tiny").with_template(OTHER);
    let expected =
        [("shouts".to_owned(), booleans(), Some(json!(true))), ("thinking".to_owned(), json!([]), Some(json!(true)))];
    assert_eq!(arguments(&template, settings), expected);
    assert_eq!(arguments(&ModelFolder::new("qwen"), settings), []);
    assert_eq!(arguments(&template, &format!("adapter = \"chatml\"\n{settings}")), []);
}
