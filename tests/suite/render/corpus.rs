//! Real templates and conversations of the corpus beside the repository, compared with
//! transformers' results.

use std::path::Path;

use render_svc::catalog::{ModelTable, ServedModel};
use render_svc::cli::json;
use render_svc::limits::Limits;
use render_svc::render::render;
use serde_json::{Value, json};
use tandem_template::LocalTime;
use tandem_tests::corpus::{read, request};
use tandem_tests::{answer, corpus};
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

#[test]
fn typed_blocks_render_as_calls_and_messages_of_the_tool_in_every_template() {
    let Some(corpus) = corpus() else { return };
    let (mut templates, mut shown, mut wrong) = (0, 0, Vec::new());
    for entry in read(&corpus.join("templates/manifest.json")).as_array().expect("a list") {
        let slug = entry["slug"].as_str().expect("a slug");
        let models = model(&corpus, entry, slug);
        let answer = |messages: Value| answer(&models, &json!({"messages": messages}));
        let object = answer(called_by_messages(json!({"city": "Paris"})));
        let text = answer(called_by_messages(json!(r#"{"city": "Paris"}"#)));
        let is_text = object["warnings"] != json!([]) && text["prompt"].is_string();
        let expected = if is_text { text } else { object };
        let found = answer(called_by_blocks());
        templates += 1;
        shown += usize::from(found["prompt"].is_string());
        if (&found["prompt"], &found["error"]["reason"]) != (&expected["prompt"], &expected["error"]["reason"]) {
            wrong.push(format!("{slug}\n  {found}\n  {expected}"));
        }
    }
    eprintln!("{shown} of {templates} templates render typed blocks");
    assert!(wrong.is_empty(), "{} are wrong; the first:\n{}", wrong.len(), wrong[0]);
    assert!(shown > 200, "only {shown} templates render typed blocks");
}

fn called_by_blocks() -> Value {
    let call = json!({"type": "tool_use", "id": "abcdefghi", "name": "w", "input": {"city": "Paris"}});
    let result = json!({"type": "tool_result", "tool_use_id": "abcdefghi", "content": "sunny"});
    json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is sunny."}]},
        {"role": "user", "content": "Thanks"},
    ])
}

fn called_by_messages(arguments: Value) -> Value {
    let call = json!({"id": "abcdefghi", "type": "function", "function": {"name": "w", "arguments": arguments}});
    json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
        {"role": "user", "content": "Thanks"},
    ])
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
