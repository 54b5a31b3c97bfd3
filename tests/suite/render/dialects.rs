//! One conversation in both forms of a request, the JSON of the command line and the contract's
//! messages, gives one prompt or one error.

use render_svc::catalog::ModelTable;
use render_svc::cli::json as command_line;
use render_svc::job::RenderJob;
use render_svc::limits::Limits;
use render_svc::render::render;
use serde_json::{Value, json};
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::render::v1 as pb;
use tandem_template::LocalTime;
use tandem_tests::ModelFolder;
use tandem_tests::conversations::{blocks, conversation, text, text_block};

/// A reproducible stream of small numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn words(&mut self) -> &'static str {
        self.pick(&["", "Hi", " é\n", "<think>", "{}"])
    }
}

/// A message as JSON and as the contract's message.
type Both = (Value, chat::ChatMessage);

fn call(numbers: &mut Numbers) -> (Value, chat::ToolCall) {
    let object = json!({"city": numbers.words(), "n": [1.0, null]});
    let arguments = if numbers.below(2) == 0 { object } else { json!(object.to_string()) };
    let id = numbers.pick(&["a", "b"]);
    let function = json!({"name": "f", "arguments": arguments});
    let typed = chat::ToolCall { id: Some(id.to_owned()), name: "f".to_owned(), arguments_json: arguments.to_string() };
    (json!({"id": id, "type": "function", "function": function}), typed)
}

fn typed_block(numbers: &mut Numbers, role: &str) -> (Value, chat::block::Kind) {
    let (words, id) = (numbers.words(), numbers.pick(&["a", "b"]));
    match (role, numbers.below(3)) {
        ("assistant", 0) => {
            let input = json!({"city": words});
            let block = chat::ToolUseBlock { id: Some(id.to_owned()), name: "f".into(), input_json: input.to_string() };
            (json!({"type": "tool_use", "id": id, "name": "f", "input": input}), chat::block::Kind::ToolUse(block))
        }
        ("user", 0) => {
            let content = Some(chat::tool_result_block::Content::Text(words.to_owned()));
            let block = chat::ToolResultBlock { tool_use_id: Some(id.to_owned()), content, is_error: None };
            let json = json!({"type": "tool_result", "tool_use_id": id, "content": words});
            (json, chat::block::Kind::ToolResult(block))
        }
        _ => (json!({"type": "text", "text": words}), text_block(words)),
    }
}

fn message(numbers: &mut Numbers) -> Both {
    let role = numbers.pick(&["system", "user", "user", "assistant", "assistant", "tool", "developer"]);
    let (mut json, mut typed) = match numbers.below(5) {
        0 => {
            (json!({"role": role, "content": null}), chat::ChatMessage { role: role.to_owned(), ..Default::default() })
        }
        1 | 2 => {
            let (items, kinds): (Vec<_>, Vec<_>) = (0..2).map(|_| typed_block(numbers, role)).unzip();
            (json!({"role": role, "content": items}), blocks(role, kinds))
        }
        _ => {
            let words = numbers.words();
            (json!({"role": role, "content": words}), text(role, words))
        }
    };
    if role == "tool" {
        json["tool_call_id"] = json!("a");
        typed.tool_call_id = Some("a".to_owned());
    }
    if role == "assistant" && numbers.below(2) == 0 {
        let (items, calls): (Vec<_>, Vec<_>) = (0..=numbers.below(2)).map(|_| call(numbers)).unzip();
        json["tool_calls"] = json!(items);
        typed.tool_calls = calls;
    }
    (json, typed)
}

/// Returns the prompt, or the reason and the text of the error.
fn outcome(models: &ModelTable, job: Result<RenderJob, render_svc::error::Error>) -> Result<String, Box<[Value; 2]>> {
    let answer = command_line::answer(job.and_then(|job| render(models, job, &Limits::default())));
    match answer["prompt"].as_str() {
        Some(prompt) => Ok(prompt.to_owned()),
        None => Err(Box::new([answer["error"]["reason"].clone(), answer["error"]["message"].clone()])),
    }
}

#[test]
fn one_conversation_gives_one_prompt_in_both_forms() {
    for family in ["deepseek_v32", "deepseek_v4", "gemma4"] {
        let models = ModelFolder::new("tiny").with_architecture(family).models();
        let (mut numbers, mut rendered) = (Numbers(11), 0);
        for i in 0..600 {
            let (messages, typed): (Vec<_>, Vec<_>) = (0..=numbers.below(5)).map(|_| message(&mut numbers)).unzip();
            let policy = if i % 3 == 0 { pb::Normalization::None } else { pb::Normalization::Capability };
            let name = if i % 3 == 0 { "none" } else { "capability" };
            let args = json!({"thinking": numbers.below(2) == 0, "enable_thinking": false});
            let request = json!({"messages": messages, "template_args": args, "normalization": name});
            let conversation = chat::Conversation { template_args_json: Some(args.to_string()), ..conversation(typed) };
            let options = pb::RenderOptions { normalization: policy.into(), ..pb::RenderOptions::default() };
            let contract = pb::RenderRequest {
                conversation: Some(conversation),
                options: Some(options),
                ..pb::RenderRequest::default()
            };
            let json = outcome(&models, command_line::request(&request.to_string(), LocalTime::EPOCH));
            let typed = outcome(&models, RenderJob::try_from(contract).map_err(Into::into));
            assert_eq!(json, typed, "{family}: {request}");
            rendered += usize::from(json.is_ok());
        }
        assert!(rendered > 60, "{family}: only {rendered} were rendered");
    }
}
