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

/// Conversations whose default rendering should equal transformers' wherever a template takes them,
/// each with the words that a prompt then contains.
fn taken_conversations() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    let said = |role: &str, content: Value| json!({"role": role, "content": content});
    let list = |texts: &[&str]| -> Value { texts.iter().map(|text| json!({"type": "text", "text": text})).collect() };
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tools = json!([{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": parameters}}]);
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}});
    let calls = |ids: &[&str]| -> Value {
        json!({"role": "assistant", "content": "", "tool_calls": ids.iter().map(|id| call(id)).collect::<Vec<_>>()})
    };
    let result = |id: &str, content: Value| json!({"role": "tool", "tool_call_id": id, "name": "get_weather", "content": content});
    let [first, second] = ["callabc01", "callabc02"];
    let asked = || said("user", json!("Hello there"));
    let cases = [
        ("user lists", json!([said("user", list(&["Name", " the capital!"]))]), vec!["Name", "the capital!"]),
        (
            "assistant lists",
            json!([asked(), said("assistant", list(&["Good day", "to you"])), said("user", json!("And now?"))]),
            vec!["Hello there", "Good day", "to you", "And now?"],
        ),
        (
            "system lists",
            json!([said("system", list(&["Be brief.", "Be kind."])), asked()]),
            vec!["Be brief.", "Be kind.", "Hello there"],
        ),
        (
            "tool results of several parts",
            json!([asked(), calls(&[first]), result(first, list(&["Sunny today.", "22 degrees."]))]),
            vec!["Hello there", "Sunny today.", "22 degrees."],
        ),
        (
            "results of two calls",
            json!([asked(), calls(&[first, second]), result(first, json!("Sunny")), result(second, json!("Rainy"))]),
            vec!["Hello there", "Sunny", "Rainy"],
        ),
        ("repeated users", json!([asked(), said("user", json!("Second thing"))]), vec!["Hello there", "Second thing"]),
        (
            "repeated assistants",
            json!([asked(), said("assistant", json!("Answer one")), said("assistant", json!("Answer two")), asked()]),
            vec!["Hello there", "Answer one", "Answer two"],
        ),
    ];
    let request = |name: &str, messages| match name {
        "tool results of several parts" | "results of two calls" => json!({"messages": messages, "tools": tools}),
        _ => json!({"messages": messages}),
    };
    cases.into_iter().map(|(name, messages, words)| (name, request(name, messages), words)).collect()
}

/// Returns the prompt of a request with this normalization.
fn prompt_of(models: &ModelTable, request: &Value, normalization: &str) -> Value {
    let mut request = request.clone();
    request["adapter"] = "tokenizer-template".into();
    request["normalization"] = normalization.into();
    let job = json::request(&request.to_string(), NOW).expect("a request");
    json::answer(render(models, job, &Limits::default()))
}

/// Without normalization, prompts equal transformers', as the test above shows.
#[test]
fn by_default_a_conversation_that_a_template_takes_renders_as_in_transformers() {
    let Some(corpus) = corpus() else { return };
    let cases = taken_conversations();
    let (mut taken, mut wrong, mut silent) = (vec![0; cases.len()], Vec::new(), Vec::new());
    for entry in read(&corpus.join("templates/manifest.json")).as_array().expect("a list") {
        let slug = entry["slug"].as_str().expect("a slug");
        let models = model(&corpus, entry, slug);
        for ((name, request, words), taken) in cases.iter().zip(&mut taken) {
            let [none, default] = ["none", "capability"].map(|policy| prompt_of(&models, request, policy));
            let shows = |answer: &Value| {
                answer["prompt"].as_str().is_some_and(|text| words.iter().all(|word| text.contains(word)))
            };
            let is_printed = none["prompt"]
                .as_str()
                .is_some_and(|text| text.contains("'type': 'text'") || text.contains("\"type\":"));
            if shows(&none) && (!is_printed || none == default) {
                *taken += 1;
                if none["prompt"] != default["prompt"] {
                    wrong.push(format!("{name}: {slug}"));
                }
            }
            if default["prompt"].is_string() && !shows(&default) && default["warnings"] == json!([]) {
                silent.push(format!("{name}: {slug}"));
            }
        }
    }
    for ((name, ..), taken) in cases.iter().zip(&taken) {
        eprintln!("{name}: {taken} templates take them");
    }
    assert!(wrong.is_empty(), "by default these differ: {wrong:#?}");
    assert!(silent.is_empty(), "words are lost without a warning: {silent:#?}");
    assert!(taken.iter().all(|&taken| taken > 20), "{taken:?}");
}
