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
use tandem_tests::{AdapterRequest, ModelFolder, error_texts};

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
    ];
    let messages = cases.map(|(request, field)| match render("chatml", &request) {
        Err(Error::Invalid(Invalid { field: found, problem, .. })) => {
            assert_eq!(found, field, "{request}");
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

#[test]
fn model_name_selects_the_format() {
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
        let folder = ModelFolder::new(name);
        let model = ServedModel::load(&folder.path()).expect("the model loads");
        assert_eq!(model.adapter.adapter().name, expected, "{name}");
    }
}

#[test]
fn template_takes_precedence_over_the_model_name() {
    let folder = ModelFolder::new("qwen3").with_template("{{ messages }}");
    let model = ServedModel::load(&folder.path()).expect("the model loads");
    assert_eq!(model.adapter.adapter().name, "tokenizer-template");
}
