//! The built-in formats for models without a template: markers, tools, and the choice of the format
//! for a model.

use render_svc::adapter::AdapterOutput;
use render_svc::adapters::ADAPTERS;
use render_svc::catalog::ServedModel;
use render_svc::conversation::Invalid;
use render_svc::error::Error;
use render_svc::model::Model;
use render_svc::warning::WarningCode;
use serde_json::{Value, json};
use tandem_tests::{AdapterRequest, ModelFolder, error_texts};

const FORMATS: [&str; 3] = ["chatml", "llama3", "tagged"];

fn render(format: &str, request: &Value) -> Result<AdapterOutput, Error> {
    let adapter = ADAPTERS.iter().find(|adapter| adapter.name == format).expect("the format");
    let model = Model::load(&ModelFolder::new("tiny").path()).expect("the model loads");
    (adapter.render)(&model, &AdapterRequest::new(request).input())
}

fn prompt(format: &str, request: &Value) -> String {
    let rendered = render(format, request);
    rendered.map(|rendered| rendered.prompt).unwrap_or_else(|error| panic!("{format} {request}: {error}"))
}

#[track_caller]
fn check(request: &Value, expected: [&str; 3]) {
    for (format, expected) in FORMATS.into_iter().zip(expected) {
        assert_eq!(prompt(format, request), expected, "{format} {request}");
    }
}

#[test]
fn turns_are_marked() {
    check(
        &json!({"messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "One?"},
            {"role": "assistant", "content": "1"},
            {"role": "user", "content": "Two?"},
        ]}),
        [
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n\
             <|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n",
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nOne?<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\n1<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nTwo?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            "<|system|>\nBe brief.\n<|end|>\n<|user|>\nOne?\n<|end|>\n<|assistant|>\n1\n<|end|>\n<|user|>\nTwo?\n<|end|>\n\
             <|assistant|>\n",
        ],
    );
}

#[test]
fn the_last_turn_is_left_open_or_not_begun_on_demand() {
    let said = json!([{"role": "assistant", "content": "Once"}]);
    check(
        &json!({"messages": said, "continue_final_message": true}),
        [
            "<|im_start|>assistant\nOnce",
            "<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>\n\nOnce",
            "<|assistant|>\nOnce",
        ],
    );
    check(
        &json!({"messages": said, "add_generation_prompt": false}),
        [
            "<|im_start|>assistant\nOnce<|im_end|>\n",
            "<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>\n\nOnce<|eot_id|>",
            "<|assistant|>\nOnce\n<|end|>\n",
        ],
    );
}

#[test]
fn calls_and_results_are_tagged_text() {
    let calls = json!([
        {"id": "1", "type": "function", "function": {"name": "rag", "arguments": {"query": "é", "n": 1.0}}},
        {"id": "2", "type": "function", "function": {"name": "now", "arguments": "{\"zone\":\"UTC\"}"}},
        {"name": "bare"},
    ]);
    let written = "<tool_call>\n{\"name\": \"rag\", \"arguments\": {\"query\": \"é\", \"n\": 1.0}}\n</tool_call>\n\
                   <tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>\n\
                   <tool_call>\n{\"name\": \"bare\", \"arguments\": {}}\n</tool_call>";
    let request = json!({"add_generation_prompt": false, "messages": [
        {"role": "assistant", "content": "Let me look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "result data"},
    ]});
    let chatml = format!(
        "<|im_start|>assistant\nLet me look.\n{written}<|im_end|>\n\
         <|im_start|>user\n<tool_result>result data</tool_result><|im_end|>\n"
    );
    let llama3 = format!(
        "<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>\n\nLet me look.\n{written}<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\n<tool_result>result data</tool_result><|eot_id|>"
    );
    let tagged = format!(
        "<|assistant|>\nLet me look.\n{written}\n<|end|>\n<|user|>\n<tool_result>result data</tool_result>\n<|end|>\n"
    );
    check(&request, [&chatml, &llama3, &tagged]);
}

#[test]
fn a_call_without_words_stands_alone() {
    let call = json!({"function": {"name": "now", "arguments": "no JSON"}});
    let request = json!({"messages": [{"role": "assistant", "content": null, "tool_calls": [call]}]});
    let expected = "<|im_start|>assistant\n<tool_call>\n{\"name\": \"now\", \"arguments\": \"no JSON\"}\n</tool_call>\
                    <|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(prompt("chatml", &request), expected);
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

const SECTION: &str = "## Available Tools

To call a tool, write a <tool_call> block with one JSON object in it:

<tool_call>
{\"name\": \"tool_name\", \"arguments\": {\"parameter\": \"value\"}}
</tool_call>

The answer comes in a <tool_result> block. Then call another tool, or reply to the user.

### file_read
Read file contents
Parameters: {path (string): File path to read, limit: integer, mode: string or null, any: any}

### stop";

#[test]
fn tools_end_the_system_prompt() {
    let request = json!({"tools": tools(), "messages": [{"role": "system", "content": "Be brief."}]});
    let chatml = format!("<|im_start|>system\nBe brief.\n\n{SECTION}<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(prompt("chatml", &request), chatml);
}

#[test]
fn tools_without_a_system_prompt_get_one() {
    let request = json!({"tools": tools(), "messages": [{"role": "user", "content": "Hi"}]});
    let tagged = format!("<|system|>\n{SECTION}\n<|end|>\n<|user|>\nHi\n<|end|>\n<|assistant|>\n");
    assert_eq!(prompt("tagged", &request), tagged);
    let none = json!({"tools": [], "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(prompt("tagged", &none), "<|user|>\nHi\n<|end|>\n<|assistant|>\n");
}

#[test]
fn blocks_become_text() {
    let request = json!({"add_generation_prompt": false, "messages": [
        {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "image", "base64": "aGk="}, {"type": "text", "text": "?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Hm."}, {"type": "tool_use", "name": "look", "input": {"at": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "a cat"}]}]},
    ]});
    let expected = "<|im_start|>user\nWhat is <image>?<|im_end|>\n<|im_start|>assistant\nHm.\n<tool_call>\n\
                    {\"name\": \"look\", \"arguments\": {\"at\": 1}}\n</tool_call><|im_end|>\n\
                    <|im_start|>user\n<tool_result>a cat</tool_result><|im_end|>\n";
    assert_eq!(prompt("chatml", &request), expected);
}

#[test]
fn what_cannot_be_written_is_refused_by_field() {
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
fn what_is_ignored_is_told() {
    let request = json!({
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": tools(), "documents": [{}], "template_args": {"thinking": true},
    });
    let warnings = render("llama3", &request).expect("a prompt").warnings;
    let codes: Vec<_> = warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(codes, [WarningCode::DocumentsIgnored, WarningCode::TemplateArgsIgnored]);
}

#[test]
fn a_file_name_tells_the_format() {
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
fn a_template_wins_over_the_file_name() {
    let folder = ModelFolder::new("qwen3").with_template("{{ messages }}");
    let model = ServedModel::load(&folder.path()).expect("the model loads");
    assert_eq!(model.adapter.adapter().name, "tokenizer-template");
}
