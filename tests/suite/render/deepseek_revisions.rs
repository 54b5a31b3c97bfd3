//! The revision of a DeepSeek encoder, and templates in a folder of a family without one.

use std::fs;

use render_svc::adapters::Registry;
use render_svc::catalog::{ModelCatalog, Sources};
use serde_json::{Value, json};
use tandem_tests::{ModelFolder, answer};

const ABSOLUTE: &str = "Reasoning Effort: Absolute maximum";
const BEYOND: &str = "Reasoning Effort: Beyond maximum";

/// Source with the mark of the preview's encoder: the text of one effort.
const PREVIEW: &str = "REASONING_EFFORT_MAX = (\n    \"Reasoning Effort: Absolute maximum with no shortcuts\\n\"\n)\n";

/// Source of a later encoder: the texts of two efforts.
const LATER: &str = "PROMPTS = {\n    \"high\": \"Reasoning Effort: Absolute maximum\",\n    \
                     \"max\": \"Reasoning Effort: Beyond maximum — exhaustive\",\n}\n";

fn v4(encoder: Option<(&str, &str)>) -> ModelFolder {
    configured(&json!({"model_type": "deepseek_v4"}), encoder)
}

/// Returns a model of this config and, if given, this file in the folder of the encoder.
fn configured(config: &Value, encoder: Option<(&str, &str)>) -> ModelFolder {
    let folder = ModelFolder::new("tiny");
    fs::write(folder.path().join("config.json"), config.to_string()).expect("a file");
    if let Some((name, source)) = encoder {
        let encoding = folder.path().join("encoding");
        fs::create_dir(&encoding).expect("a folder");
        fs::write(encoding.join(name), source).expect("a file");
    }
    folder
}

fn asked(folder: &ModelFolder, effort: &Value) -> Value {
    let args = json!({"thinking": true, "reasoning_effort": effort});
    answer(&folder.models(), &json!({"messages": [{"role": "user", "content": "Hi"}], "template_args": args}))
}

/// Checks the first words of the prompt after bos, by effort; None for a refused effort.
#[track_caller]
fn check(folder: &ModelFolder, efforts: [Option<&str>; 3], revision: &str) {
    for (effort, expected) in ["low", "high", "max"].into_iter().zip(efforts) {
        let answer = asked(folder, &json!(effort));
        match expected {
            None => assert_eq!(answer["error"]["field"], "template_args.reasoning_effort", "{answer}"),
            Some(start) => {
                let prompt = answer["prompt"].as_str().unwrap_or_else(|| panic!("{effort}: {answer}"));
                let rest = prompt.strip_prefix("<｜begin▁of▁sentence｜>").expect("bos");
                let expected = if start.is_empty() { "<｜User｜>Hi<｜Assistant｜><think>" } else { start };
                assert!(rest.starts_with(expected), "{effort}: {prompt}");
            }
        }
    }
    assert!(reason(folder).contains(&format!("revision {revision} of the encoder")), "{}", reason(folder));
}

fn reason(folder: &ModelFolder) -> String {
    let models = folder.models();
    models.get("").expect("the only model").adapter.resolution.reason.clone()
}

const PREVIEW_EFFORTS: [Option<&str>; 3] = [None, Some(""), Some(ABSOLUTE)];
const LATER_EFFORTS: [Option<&str>; 3] = [Some(""), Some(ABSOLUTE), Some(BEYOND)];

/// The official encoders of both have these texts: `encoding_dsv4` of sglang 0.5.12 is the preview's,
/// that of xinference 4.1.0 the one of DeepSeek-V4-Flash-0731.
#[test]
fn the_encoder_in_the_folder_decides_the_efforts() {
    check(&v4(Some(("encoding_dsv4.py", PREVIEW))), PREVIEW_EFFORTS, "preview");
    check(&v4(Some(("encoding_dsv4.py", LATER))), LATER_EFFORTS, "0731");
    check(&v4(Some(("encoding.py", PREVIEW))), PREVIEW_EFFORTS, "preview");
}

#[test]
fn a_comment_does_not_decide_the_efforts() {
    let commented = format!("# {BEYOND} came later\n{PREVIEW}");
    check(&v4(Some(("encoding_dsv4.py", &commented))), PREVIEW_EFFORTS, "preview");
}

#[test]
fn without_an_encoder_the_config_decides_or_else_the_newest() {
    let config = |profile: &str| json!({"model_type": "deepseek_v4", "dsv4_reasoning_effort_profile": profile});
    let named = |profile: &str| configured(&config(profile), None);
    check(&named("preview"), PREVIEW_EFFORTS, "preview");
    check(&named("official"), LATER_EFFORTS, "0731");
    check(&named("other"), LATER_EFFORTS, "0731");
    check(&configured(&config("preview"), Some(("encoding_dsv4.py", LATER))), LATER_EFFORTS, "0731");
    check(&v4(None), LATER_EFFORTS, "0731");
    check(&v4(Some(("encoding_dsv4.py", "nothing"))), LATER_EFFORTS, "0731");
    check(&v4(Some(("test_encoding_dsv4.py", PREVIEW))), LATER_EFFORTS, "0731");
}

#[test]
fn no_effort_adds_nothing_in_any_revision() {
    for folder in [v4(None), v4(Some(("encoding_dsv4.py", PREVIEW)))] {
        let answer = asked(&folder, &Value::Null);
        assert_eq!(answer["prompt"], "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜><think>");
    }
}

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

fn codes(folder: &ModelFolder, adapter: Option<&str>) -> (Value, Vec<(String, String)>) {
    let mut request = json!({"messages": [{"role": "user", "content": "Hi"}]});
    if let Some(adapter) = adapter {
        request["adapter"] = json!(adapter);
    }
    let answer = answer(&folder.models(), &request);
    let warnings = answer["warnings"].as_array().expect("warnings").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let codes = warnings.map(|warning| (text(&warning["code"]), text(&warning["path"]))).collect();
    (answer["adapter"].clone(), codes)
}

#[test]
fn the_encoder_renders_and_another_template_is_warned_of() {
    for (family, adapter) in [("deepseek_v32", "deepseek-v3.2"), ("deepseek_v4", "deepseek-v4")] {
        let with = |template: &str| ModelFolder::new("tiny").with_architecture(family).with_template(template);
        let differs = vec![("TEMPLATE_DIFFERS".to_owned(), "model".to_owned())];
        assert_eq!(codes(&with(CHATML), None), (json!(adapter), differs.clone()));
        assert_eq!(codes(&with("{{ raise_exception('no') }}"), None), (json!(adapter), differs));
        assert!(reason(&with(CHATML)).contains("chat template that renders a question differently"));
        assert_eq!(codes(&with(CHATML), Some(adapter)), (json!(adapter), vec![]));
        assert_eq!(codes(&with(CHATML), Some("tokenizer-template")).0, "tokenizer-template");
    }
}

#[test]
fn dsml_in_a_comment_selects_nothing() {
    let template = format!("{CHATML}{{# <｜DSML｜function_calls> <|turn> <turn|> #}}");
    let folder = ModelFolder::new("tiny").with_architecture("llama").with_template(&template);
    assert_eq!(codes(&folder, None), (json!("tokenizer-template"), vec![]));
}

#[test]
fn an_alias_of_the_repository_selects_the_family() {
    let folder = ModelFolder::new("tiny");
    let config = folder.path().join("models.toml");
    let text = format!("[[models]]\npath = {:?}\naliases = [\"DEEPSEEK-ai/deepseek-V3.2\"]\n", folder.path());
    fs::write(&config, text).expect("a file");
    let sources = Sources { config: Some(config), ..Sources::default() };
    let catalog = ModelCatalog::open(sources, Registry::default()).expect("a catalog");
    let models = catalog.models();
    assert_eq!(models.get("tiny").expect("the model").adapter.adapter().name, "deepseek-v3.2");
}
