//! Compiles arbitrary text as a chat template and renders it for one rich conversation.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use tandem_template::{ChatTemplate, Input, Limits, LocalTime};

/// Small, so that hostile templates end soon.
const LIMITS: Limits = Limits { steps: 300_000, bytes: 16 * 1024 * 1024, output: 1024 * 1024 };
const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };

struct Conversation {
    messages: Vec<Value>,
    tools: Value,
    documents: Value,
    args: Map<String, Value>,
}

static CONVERSATION: LazyLock<Conversation> = LazyLock::new(|| {
    Conversation {
    messages: vec![
        json!({"role": "system", "content": "Be \"brief\".\n"}),
        json!({"role": "user", "content": [{"type": "text", "text": "Hi žluť"}, {"type": "image"}]}),
        json!({"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5, null], "y": {"z": true}}}},
        ]}),
        json!({"role": "tool", "name": "f", "tool_call_id": "c", "content": "{\"a\": 1}"}),
        json!({"role": "user", "content": " Bye "}),
    ],
    tools: json!([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {
        "type": "object", "properties": {"x": {"type": ["array", "null"], "items": {"type": "number"}}}, "required": ["x"],
    }}}]),
    documents: json!([{"title": "t", "text": "<b>"}]),
    args: json!({
        "i": 7, "f": 2.5, "s": "Hello World", "l": [3, 1, 2], "d": {"b": 1, "a": [true, null]}, "n": null, "u": "ǆ İß\u{a0}",
    })
    .as_object()
    .cloned()
    .unwrap_or_default(),
}
});

fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::compile(source) else { return };
    let _ = (template.reads("tools"), template.literal_text());
    let conversation = &*CONVERSATION;
    let input = Input {
        messages: &conversation.messages,
        tools: Some(&conversation.tools),
        documents: Some(&conversation.documents),
        args: &conversation.args,
        special_tokens: &Map::new(),
        add_generation_prompt: true,
        continue_final_message: None,
        now: NOW,
        taint: None,
    };
    let _ = template.apply(&input, &LIMITS);
});
