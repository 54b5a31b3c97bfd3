//! Real templates and conversations of the corpus beside the repository, compared with
//! transformers' results.

use std::path::Path;

use render_svc::catalog::{ModelTable, ServedModel};
use render_svc::cli::json;
use render_svc::limits::Limits;
use render_svc::render::render;
use serde_json::{Value, json};
use tandem_template::LocalTime;
use tandem_tests::corpus;
use tandem_tests::corpus::{read, request};
use tempfile::TempDir;

/// The time at which the goldens were made.
const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };

#[test]
fn every_template_renders_every_conversation_as_transformers_does() {
    let Some(corpus) = corpus() else { return };
    let (mut cases, mut wrong) = (0, Vec::new());
    for entry in read(&corpus.join("templates/manifest.json")).as_array().expect("a list") {
        let slug = entry["slug"].as_str().expect("a slug");
        let models = model(&corpus, entry, slug);
        let goldens = read(&corpus.join(format!("goldens/{slug}.json")));
        for (id, golden) in goldens["cases"].as_object().expect("cases") {
            let job = json::request(&request(&corpus, id).to_string(), NOW).expect("a request");
            let answer = json::answer(render(&models, job, &Limits::default()));
            cases += 1;
            if !is_right(&answer, golden) {
                wrong.push(format!("{slug} {id}\n  {answer}\n  {golden}"));
            }
        }
    }
    eprintln!("{} of {cases} cases are right", cases - wrong.len());
    assert!(wrong.is_empty(), "{} are wrong; the first:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
    assert!(cases > 10_000, "only {cases} cases were found");
}

/// Returns true if the prompt equals the golden's. If transformers failed, the answer must be an
/// error, with the template's message if the template raised it.
fn is_right(answer: &Value, golden: &Value) -> bool {
    match golden["ok"].as_str() {
        Some(text) => answer["prompt"] == text,
        None if golden["raised_by_template"] == true => answer["error"]["message"] == golden["message"],
        None => answer["error"].is_object(),
    }
}

fn model(corpus: &Path, entry: &Value, slug: &str) -> ModelTable {
    let folder = TempDir::new().expect("a temporary folder");
    let template = std::fs::read_to_string(corpus.join(format!("templates/{slug}.jinja"))).expect("a template");
    let mut config = json!({"chat_template": template});
    for token in ["bos_token", "eos_token"].into_iter().filter(|&token| entry[token].is_string()) {
        config[token] = entry[token].clone();
    }
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).expect("a file");
    ServedModel::load(folder.path()).expect("a valid model").into()
}
