//! The built-in formats for models without a template: rejected requests, warnings, and the choice
//! of the format for a model. Whole prompts are in `tests/golden`.

use render_svc::adapter::AdapterOutput;
use render_svc::adapters::ADAPTERS;
use render_svc::catalog::ServedModel;
use render_svc::conversation::Invalid;
use render_svc::error::Error;
use render_svc::model::Model;
use render_svc::warning::WarningCode;
use serde_json::{Value, json};
use tandem_tests::{AdapterRequest, ModelFolder, answer, error_texts};

fn render(format: &str, request: &Value) -> Result<AdapterOutput, Error> {
    let adapter = ADAPTERS.iter().find(|adapter| adapter.name == format).expect("the format");
    let model = Model::load(&ModelFolder::new("tiny").path()).expect("the model loads");
    (adapter.render)(&model, &AdapterRequest::new(request).input())
}

fn tools() -> Value {
    json!([
        {"type": "function", "function": {
            "name": "file_read",
            "description": "Read file contents",
            "parameters": {"type": "object", "required": ["path"], "properties": {
                "path": {"type": "string", "description": "File path to read"},
                "limit": {"type": "integer"},
                "mode": {"type": ["string", "null"]},
                "any": {},
            }},
        }},
        {"name": "stop"},
    ])
}

#[test]
fn unrenderable_input_is_rejected_by_field() {
    let cases = [
        (json!({"messages": [{"role": "critic", "content": "no"}]}), "messages[0].role"),
        (json!({"messages": [{"content": "no"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user", "content": 5}]}), "messages[0].content"),
        (json!({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}), "messages[0].content[0]"),
        (json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}), "messages[0].content[0].text"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "video"}]}]}]}),
            "messages[0].content[0].content[0]",
        ),
        (json!({"messages": [{"role": "assistant", "tool_calls": {}}]}), "messages[0].tool_calls"),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}),
            "messages[0].tool_calls[0].function.name",
        ),
        (json!({"messages": [{"role": "user"}], "tools": [{"function": {"name": 5}}]}), "tools[0].function.name"),
        (json!({"messages": [{"role": "user"}], "tools": [{}]}), "tools[0].name"),
        (json!({"messages": [{"role": "user"}], "tools": [{"function": {"name": ""}}]}), "tools[0].function.name"),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}]}),
            "messages[0].tool_calls[0].function.name",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": ""}]}]}),
            "messages[0].content[0].name",
        ),
    ];
    let messages = cases.map(|(request, field)| match render("chatml", &request) {
        Err(Error::Invalid(Invalid { field: found, problem, .. })) => {
            assert_eq!(found.to_string(), field, "{request}");
            problem
        }
        other => panic!("{request}: {other:?}"),
    });
    error_texts::check_rows("formats/invalid", messages);
}

#[test]
fn ignored_inputs_cause_warnings() {
    let request = json!({
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": tools(), "documents": [{}], "template_args": {"thinking": true},
    });
    let warnings = render("llama3", &request).expect("a prompt").warnings;
    let codes: Vec<_> = warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(codes, [WarningCode::DocumentsIgnored, WarningCode::TemplateArgsIgnored]);
}

/// Returns the adapter of a folder with this name and these tokens; None is a folder without a
/// tokenizer. The warning that the format is a guess must have the reason of the choice.
fn guessed(name: &str, tokens: Option<&[&str]>) -> (String, String) {
    let folder = ModelFolder::new(name);
    let folder = match tokens {
        Some(tokens) => folder.with_tokens(&tokens.iter().map(|token| (*token, true)).collect::<Vec<_>>()),
        None => folder,
    };
    let served = ServedModel::load(&folder.path()).expect("the model loads");
    let reason = served.adapter.resolution.reason.clone();
    let answer = answer(&served.into(), &json!({"messages": [{"role": "user", "content": "Hi"}]}));
    let warning = &answer["warnings"][0];
    assert_eq!((&warning["code"], &warning["path"]), (&json!("FORMAT_GUESSED"), &json!("model")), "{name}: {answer}");
    assert!(warning["text"].as_str().is_some_and(|text| text.starts_with(&reason)), "{answer}");
    (answer["adapter"].as_str().expect("a name").to_owned(), reason)
}

#[test]
fn model_name_selects_the_format_where_no_tokenizer_contradicts() {
    let cases = [
        ("qwen2.5-coder-7b", "chatml"),
        ("Qwen3-8B-Q4K", "chatml"),
        ("deepseek-coder-v2", "chatml"),
        ("DeepSeek-R1-Distill-Llama-8B", "chatml"),
        ("yi-34b", "chatml"),
        ("llama-3.2-3b", "llama3"),
        ("Meta-Llama-3-8B", "llama3"),
        ("models--qwen--other/snapshots/1", "plain"),
        ("custom-model", "plain"),
    ];
    for (name, expected) in cases {
        assert_eq!(guessed(name, None).0, expected, "{name}");
    }
}

const IM_START: &str = "<|im_start|>";
const HEADER: &str = "<|start_header_id|>";

/// A format is never chosen by a name if the tokenizer lacks its control tokens.
#[test]
fn control_tokens_of_the_tokenizer_decide_about_the_format() {
    let cases: &[(&str, &[&str], &str)] = &[
        ("Qwen3-8B", &[IM_START], "chatml"),
        ("Meta-Llama-3-8B", &[HEADER], "llama3"),
        ("Llama-2-7b-chat-hf", &["<s>", "</s>"], "plain"),
        ("deepseek-llm-7b-chat", &["<｜begin▁of▁sentence｜>"], "plain"),
        ("DeepSeek-V4.1-Flash", &["<｜User｜>", "<｜Assistant｜>"], "plain"),
        ("Mistral-7B-Instruct-v0.1", &["<s>"], "plain"),
        ("DeepSeek-R1-Distill-Llama-8B", &[HEADER], "llama3"),
        ("llama-chatml-merge", &[IM_START], "chatml"),
        ("llama-of-both", &[IM_START, HEADER], "llama3"),
        ("assistant-8b", &[HEADER], "llama3"),
        ("assistant-8b", &[IM_START, HEADER], "chatml"),
        ("assistant-8b", &["<|system|>", "<|end|>"], "tagged"),
        ("assistant-8b", &["<|system|>"], "plain"),
        ("qwen-phi", &["<|system|>", "<|end|>"], "tagged"),
    ];
    for (name, tokens, expected) in cases {
        assert_eq!(guessed(name, Some(tokens)).0, *expected, "{name} {tokens:?}");
    }
}

#[test]
fn the_resolution_names_the_facts_that_chose_a_format() {
    let reasons = [
        guessed("qwen3", Some(&[IM_START])),
        guessed("qwen3", None),
        guessed("qwen3", Some(&[HEADER])),
        guessed("qwen3", Some(&[])),
        guessed("custom", Some(&[IM_START])),
        guessed("custom", Some(&[])),
        guessed("custom", None),
    ];
    error_texts::check_rows("resolution/format", reasons.map(|(_, reason)| reason));
}

#[test]
fn a_pinned_format_is_no_guess() {
    let folder = ModelFolder::new("custom");
    let request = json!({"adapter": "llama3", "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(answer(&folder.models(), &request)["warnings"], json!([]));
}

/// A model that was not trained on `<|end|>` writes the start of the next turn instead.
#[test]
fn marks_of_roles_end_a_turn_of_the_tagged_format() {
    let request = json!({"adapter": "tagged", "messages": [{"role": "user", "content": "Hi"}]});
    let unknown = answer(&ModelFolder::new("custom").with_tokenizer().models(), &request);
    let stops = unknown["output_spec"]["stop_strings"].as_array().expect("stop strings");
    for mark in ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"] {
        assert!(stops.contains(&json!(mark)), "{mark}: {unknown}");
    }
    let known = ModelFolder::new("custom").with_tokens(&[("<|end|>", true), ("<|user|>", true)]);
    let known = answer(&known.models(), &request)["output_spec"].clone();
    assert_eq!(known["eos_token_ids"].as_array().map(Vec::len), Some(2), "{known}");
    assert!(!known["stop_strings"].as_array().expect("stop strings").contains(&json!("<|user|>")), "{known}");
}

#[test]
fn template_takes_precedence_over_the_model_name() {
    let folder = ModelFolder::new("qwen3").with_template("{{ messages }}");
    let model = ServedModel::load(&folder.path()).expect("the model loads");
    assert_eq!(model.adapter.adapter().name, "tokenizer-template");
}
