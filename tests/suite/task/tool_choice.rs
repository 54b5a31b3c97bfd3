//! Tasks whose answers must call tools, with the real model.

use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1 as generate;
use tandem_common::pb::render::v1::{ParsedOutput, RenderOptions};
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::pb::task::v1::{RunTaskRequest, TaskFinished, ToolChoice, ToolChoiceMode, tool_choice};
use tandem_tests::failure::is_failed;
use tandem_tests::{Generation, default_model, render_service};
use tonic::transport::Channel;
use tonic::{Code, Status};

fn tool(name: &str, parameters: &str) -> chat::Tool {
    let function = chat::FunctionTool {
        name: name.to_owned(),
        description: Some("Returns the weather".to_owned()),
        parameters_json: Some(parameters.to_owned()),
    };
    chat::Tool { kind: Some(chat::tool::Kind::Function(function)) }
}

/// A task in the notation of an adapter.
fn task(adapter: &str, choice: tool_choice::Choice) -> RunTaskRequest {
    let content = Some(chat::chat_message::Content::Text("What is the weather in Paris and in Rome?".to_owned()));
    let message = chat::ChatMessage { role: "user".to_owned(), content, ..Default::default() };
    let weather = r#"{"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9}, "wet": {"type": "boolean"}}, "required": ["city", "days"]}"#;
    let tools = vec![tool("get_weather", weather), tool("get_time", "{}")];
    RunTaskRequest {
        conversation: Some(chat::Conversation { messages: vec![message], tools, ..Default::default() }),
        options: Some(RenderOptions { adapter: Some(adapter.to_owned()), ..Default::default() }),
        sampling: Some(generate::Sampling { temperature: Some(0.0), ..Default::default() }),
        stop: Some(generate::Stop { max_new_tokens: Some(180), ..Default::default() }),
        tool_choice: Some(ToolChoice { choice: Some(choice) }),
        parse_output: true,
        ..Default::default()
    }
}

fn mode(mode: ToolChoiceMode) -> tool_choice::Choice {
    tool_choice::Choice::Mode(mode.into())
}

async fn finished(client: &mut TaskServiceClient<Channel>, task: RunTaskRequest) -> Result<TaskFinished, Status> {
    let mut stream = client.run_task(task).await?.into_inner();
    while let Some(response) = stream.message().await? {
        if let Some(Event::Finished(finished)) = response.event {
            return Ok(finished);
        }
    }
    panic!("the task has no end")
}

/// Returns the calls, each as the name and the arguments.
fn calls(parsed: &ParsedOutput) -> Vec<(String, serde_json::Value)> {
    let calls = parsed.message.as_ref().expect("a message").tool_calls.iter();
    let arguments = |call: &chat::ToolCall| serde_json::from_str(&call.arguments_json).expect("JSON");
    calls.map(|call| (call.name.clone(), arguments(call))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_calls_the_tools_that_the_request_demands() {
    let generation = Generation::start().await;
    let service = render_service(&[default_model()], Some(generation.running.address)).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    for adapter in ["deepseek-v3.2", "gemma-4"] {
        let required = finished(&mut client, task(adapter, mode(ToolChoiceMode::Required))).await.expect("an answer");
        let is_cut = required.finish.expect("a reason").reason() == generate::FinishReason::Length;
        let parsed = required.parsed.expect("the parts");
        assert!(!calls(&parsed).is_empty() && (is_cut || parsed.warnings.is_empty()), "{adapter}: {parsed:?}");
        for (name, arguments) in calls(&parsed) {
            let city = arguments.get("city").and_then(serde_json::Value::as_str);
            let is_right = match name.as_str() {
                "get_weather" => matches!(city, Some("Paris" | "Rome")) && arguments["days"].is_u64(),
                _ => name == "get_time" && arguments == serde_json::json!({}),
            };
            assert!(is_right, "{adapter}: {name} {arguments} in {parsed:?} of {:?}", required.message);
        }
        let named = task(adapter, tool_choice::Choice::Name("get_time".to_owned()));
        let parsed = finished(&mut client, named).await.expect("an answer").parsed.expect("the parts");
        assert_eq!(calls(&parsed), [("get_time".to_owned(), serde_json::json!({}))], "{adapter}: {parsed:?}");
        let single =
            RunTaskRequest { parallel_tool_calls: Some(false), ..task(adapter, mode(ToolChoiceMode::Required)) };
        let parsed = finished(&mut client, single).await.expect("an answer").parsed.expect("the parts");
        assert_eq!(calls(&parsed).len(), 1, "{adapter}: {parsed:?}");
        let free = RunTaskRequest { parallel_tool_calls: Some(false), ..task(adapter, mode(ToolChoiceMode::Auto)) };
        let parsed = finished(&mut client, free).await.expect("an answer").parsed.expect("the parts");
        assert!(calls(&parsed).len() <= 1, "{adapter}: {parsed:?}");
        let with_tools = required.usage.expect("usage").prompt_tokens;
        let none = finished(&mut client, task(adapter, mode(ToolChoiceMode::None))).await.expect("an answer");
        assert!(
            none.usage.expect("usage").prompt_tokens < with_tools && calls(&none.parsed.expect("the parts")).is_empty()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_of_tools_that_cannot_be_kept_is_refused() {
    let generation = Generation::start().await;
    let service = render_service(&[default_model()], Some(generation.running.address)).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    let required = || task("deepseek-v3.2", mode(ToolChoiceMode::Required));
    let invalid = "INVALID_REQUEST";
    let choice = Some(generate::grammar::Kind::Choice(generate::Choice { values: vec!["a".to_owned()] }));
    let grammar = Some(generate::Grammar { kind: choice, ..Default::default() });
    let mut without_tools = required();
    without_tools.conversation.as_mut().expect("a conversation").tools.clear();
    let mut odd_schema = required();
    odd_schema.conversation.as_mut().expect("a conversation").tools =
        vec![tool("odd", r#"{"properties": {"a": {"type": "object", "not": {}}}}"#)];
    let name = tool_choice::Choice::Name("get_whether".to_owned());
    let cases = [
        ("grammar", RunTaskRequest { grammar, ..required() }, invalid, "grammar"),
        ("no_tools", without_tools, invalid, "tool_choice"),
        ("name", task("deepseek-v3.2", name), invalid, "tool_choice.name"),
        ("mode", task("deepseek-v3.2", tool_choice::Choice::Mode(9)), invalid, "tool_choice.mode"),
        ("schema", odd_schema, invalid, "tool_choice"),
        ("model", RunTaskRequest { options: None, ..required() }, "TOOL_CHOICE_NOT_SUPPORTED", "tool_choice"),
    ];
    for (case, task, reason, field) in cases {
        let code = if reason == invalid { Code::InvalidArgument } else { Code::FailedPrecondition };
        let result = finished(&mut client, task).await;
        is_failed(&format!("tool_choice/{case}"), result, code, reason, Some(field));
    }
}
