//! Errors, warnings and attachments name fields of the request message. Every path is also looked up
//! in the contract's descriptors.

use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet};
use serde_json::json;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::chat::v1::block::Kind;
use tandem_common::pb::chat::v1::tool_result_block::Content;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::registry_service_client::RegistryServiceClient;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_tests::conversations::{blocks, conversation, image_block, request, serve, text, text_block};
use tandem_tests::failure::{details, failed, field};
use tandem_tests::{ModelFolder, error_texts, render_service};

/// Checks that a path leads from the message type `root` to a field.
#[track_caller]
fn check_path(root: &str, path: &str) {
    let files = FileDescriptorSet::decode(tandem_common::pb::DESCRIPTORS).expect("the contract has descriptors");
    let mut name = root.to_owned();
    for step in path.split('.') {
        let message = message_type(&files, &name).unwrap_or_else(|| panic!("{path}: {name} is not a message"));
        let (field, index) = step.split_once('[').map_or((step, None), |(field, index)| (field, Some(index)));
        let found = message.field.iter().find(|known| known.name() == field);
        let found = found.unwrap_or_else(|| panic!("{path}: {name} has no field {field}"));
        let is_repeated = found.label() == prost_types::field_descriptor_proto::Label::Repeated;
        assert!(index.is_none() || is_repeated, "{path}: {field} is not repeated");
        name = found.type_name().trim_start_matches('.').to_owned();
    }
}

fn message_type<'f>(files: &'f FileDescriptorSet, name: &str) -> Option<&'f DescriptorProto> {
    let (package, message) = name.rsplit_once('.')?;
    let file = files.file.iter().filter(|file| file.package() == package);
    file.flat_map(|file| &file.message_type).find(|known| known.name() == message)
}

const RENDER_REQUEST: &str = "tandem.render.v1.RenderRequest";

fn result_of(blocks: Vec<Kind>) -> Kind {
    let blocks = blocks.into_iter().map(|kind| chat::Block { kind: Some(kind) }).collect();
    let content = Some(Content::Blocks(chat::BlockList { blocks }));
    Kind::ToolResult(chat::ToolResultBlock { content, ..chat::ToolResultBlock::default() })
}

fn hologram() -> Kind {
    Kind::OtherJson(json!({"type": "hologram"}).to_string())
}

fn extra(fields: &serde_json::Value) -> chat::ChatMessage {
    chat::ChatMessage { extra_json: Some(fields.to_string()), ..text("user", "a") }
}

fn pinned(adapter: &str, conversation: chat::Conversation) -> pb::RenderRequest {
    let options = Some(pb::RenderOptions { adapter: Some(adapter.to_owned()), ..pb::RenderOptions::default() });
    pb::RenderRequest { options, ..request(conversation) }
}

fn with_tool(kind: chat::tool::Kind) -> chat::Conversation {
    chat::Conversation { tools: vec![chat::Tool { kind: Some(kind) }], ..conversation(vec![text("user", "a")]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_fields_of_the_request_message() {
    let (_service, mut client) = serve("{{ messages[0].content }}").await;
    let function = |parameters: &str| {
        chat::tool::Kind::Function(chat::FunctionTool {
            name: "f".to_owned(),
            parameters_json: Some(parameters.to_owned()),
            ..chat::FunctionTool::default()
        })
    };
    let nameless = chat::tool::Kind::ToolJson(r#"{"function": {"parameters": {}}}"#.to_owned());
    let unreadable = chat::ToolCall { arguments_json: "7".to_owned(), name: "f".to_owned(), id: None };
    let calls = chat::ChatMessage { tool_calls: vec![unreadable], ..text("assistant", "") };
    let image = image_block(chat::media_block::Source::Base64("QUJD".to_owned()));
    let cases = [
        (
            "hologram",
            request(conversation(vec![text("user", "a"), blocks("user", vec![text_block("a"), hologram()])])),
            "conversation.messages[1].blocks.blocks[1]",
        ),
        (
            "nested",
            request(conversation(vec![blocks("user", vec![result_of(vec![text_block("a"), hologram()]), image])])),
            "conversation.messages[0].blocks.blocks[0].tool_result.blocks.blocks[1]",
        ),
        ("parameters", request(with_tool(function("[]"))), "conversation.tools[0].function.parameters_json"),
        (
            "properties",
            pinned("gemma-4", with_tool(function(r#"{"properties": 7}"#))),
            "conversation.tools[0].function.parameters_json",
        ),
        ("tool-json", pinned("gemma-4", with_tool(nameless)), "conversation.tools[0].tool_json"),
        (
            "arguments",
            pinned("deepseek-v3.2", conversation(vec![text("user", "a"), calls])),
            "conversation.messages[1].tool_calls[0].arguments_json",
        ),
        (
            "extra",
            pinned("deepseek-v4", conversation(vec![extra(&json!({"task": "fly"}))])),
            "conversation.messages[0].extra_json",
        ),
        (
            "template-args",
            pinned(
                "deepseek-v4",
                chat::Conversation {
                    template_args_json: Some(r#"{"thinking_mode": "deep"}"#.to_owned()),
                    ..conversation(vec![text("user", "a")])
                },
            ),
            "conversation.template_args_json",
        ),
        ("adapter", pinned("no-such", conversation(vec![text("user", "a")])), "options.adapter"),
    ];
    for (case, request, field) in cases {
        let status = client.render(request).await.expect_err(case);
        let found = failed(&status).field;
        assert_eq!(found.as_deref(), Some(field), "{case}: {}", status.message());
        check_path(RENDER_REQUEST, field);
        error_texts::check(&format!("path/{case}"), status.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_blocks_of_messages_that_were_merged_or_converted() {
    let (_service, mut client) = serve("{{ messages | tojson }}").await;
    let capabilities = pb::CapabilityOverride { capabilities: vec![pb::Capability::RequiresStrictTurns.into()] };
    let options = || Some(pb::RenderOptions { capabilities: Some(capabilities.clone()), ..Default::default() });
    let misplaced = Kind::ToolUse(chat::ToolUseBlock { name: "f".to_owned(), ..Default::default() });
    let system = || vec![text("user", "a"), text("system", "p"), text("system", "x")];
    let cases = [
        (vec![blocks("user", vec![hologram()])], "conversation.messages[3].blocks.blocks[0]"),
        (
            vec![blocks("user", vec![text_block("a"), result_of(vec![text_block("b"), hologram()])])],
            "conversation.messages[3].blocks.blocks[1].tool_result.blocks.blocks[1]",
        ),
        (vec![blocks("user", vec![misplaced])], "conversation.messages[3].blocks.blocks[0].tool_use"),
    ];
    for (messages, field) in cases {
        let conversation = conversation([system(), messages].concat());
        let request = pb::RenderRequest { options: options(), ..request(conversation) };
        let status = client.render(request).await.expect_err("the block cannot be rendered");
        assert_eq!(failed(&status).field.as_deref(), Some(field), "{}", status.message());
        check_path(RENDER_REQUEST, field);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_name_their_own_fields() {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}");
    let service = render_service(&[model.path()], None).await;
    let holograms = || Some(conversation(vec![blocks("user", vec![hologram()])]));
    let batch = pb::BatchRenderRequest {
        requests: vec![request(conversation(vec![text("user", "a")])), request(holograms().expect("set"))],
    };
    let mut render = RenderServiceClient::new(service.channel().await);
    let results = render.batch_render(batch).await.expect("a batch succeeds").into_inner().results;
    let Some(pb::render_result::Outcome::Failure(failure)) = &results[1].outcome else { panic!("{results:?}") };
    let details = details(failure);
    assert_eq!(field(&details), "requests[1].conversation.messages[0].blocks.blocks[0]");
    check_path("tandem.render.v1.BatchRenderRequest", field(&details));

    let mut registry = RegistryServiceClient::new(service.channel().await);
    let explain = pb::ExplainResolutionRequest { adapter: Some("x".to_owned()), ..Default::default() };
    let status = registry.explain_resolution(explain).await.expect_err("no adapter has this name");
    assert_eq!(failed(&status).field.as_deref(), Some("adapter"));
    check_path("tandem.render.v1.ExplainResolutionRequest", "adapter");

    let mut tasks = TaskServiceClient::new(service.channel().await);
    let task = RunTaskRequest { conversation: holograms(), ..RunTaskRequest::default() };
    let status = tasks.run_task(task).await.expect_err("the block cannot be rendered");
    let field = failed(&status).field.expect("a field");
    assert_eq!(field, "conversation.messages[0].blocks.blocks[0]");
    check_path("tandem.task.v1.RunTaskRequest", &field);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_content_and_images_for_a_text_model_cause_warnings() {
    let (_service, mut client) = serve("{% for m in messages %}{{ m.content }};{% endfor %}").await;
    let empty = || chat::ChatMessage { role: "user".to_owned(), ..chat::ChatMessage::default() };
    let call = chat::ToolCall { id: None, name: "f".to_owned(), arguments_json: "{}".to_owned() };
    let calls =
        chat::ChatMessage { tool_calls: vec![call], role: "assistant".to_owned(), ..chat::ChatMessage::default() };
    let mut warnings = async |messages: Vec<chat::ChatMessage>| {
        let response = client.render(request(conversation(messages))).await.expect("renders").into_inner();
        let warnings = response.warnings.into_iter().map(|warning| (warning.code(), warning.path));
        let warnings: Vec<_> = warnings.collect();
        warnings.iter().for_each(|(_, path)| check_path(RENDER_REQUEST, path));
        warnings
    };
    let found = warnings(vec![text("user", ""), calls, empty()]).await;
    let expected = [
        (pb::WarningCode::NoContent, "conversation.messages[2]".to_owned()),
        (pb::WarningCode::ToolCallsIgnored, "conversation.messages[1].tool_calls[0]".to_owned()),
    ];
    assert_eq!(found, expected);
    let image = image_block(chat::media_block::Source::Location("a.png".to_owned()));
    let found = warnings(vec![text("user", "a"), blocks("user", vec![text_block("b"), image])]).await;
    let path = "conversation.messages[1].blocks.blocks[1].image".to_owned();
    assert_eq!(found, [(pb::WarningCode::ImagesNotSupported, path)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_a_template_leaves_out_have_paths_of_the_contract() {
    let template = "{% for t in tools or [] %}{{ t.function.name }}{{ t.function.description }}{% endfor %}\
                    {% for d in documents or [] %}{{ d.text }}{% endfor %}\
                    {% for m in messages %}{{ m.content.split('</think>')[-1] }}{{ m.reasoning_content }}{% endfor %}";
    let (_service, mut client) = serve(template).await;
    let mut result = text("tool", "4");
    result.extra_json = Some(json!({"is_error": true}).to_string());
    let mut answer = text("assistant", "Sure.");
    answer.reasoning_content = Some("It is asked.".to_owned());
    answer.extra_json = Some(json!({"reasoning": "It is simple."}).to_string());
    let mut asked = conversation(vec![text("user", "The tag </think> ends it."), answer, result]);
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let weather = chat::FunctionTool {
        name: "weather".to_owned(),
        description: Some("Finds the weather.".to_owned()),
        parameters_json: Some(parameters.to_string()),
    };
    asked.tools = vec![chat::Tool { kind: Some(chat::tool::Kind::Function(weather)) }];
    let document = json!({"title": "On Paris", "text": "It is in France."});
    asked.documents = vec![chat::Document { document_json: document.to_string() }];
    let response = client.render(request(asked)).await.expect("renders").into_inner();
    let found: Vec<_> = response.warnings.iter().map(|w| (w.code(), w.path.as_str())).collect();
    let expected = [
        (pb::WarningCode::ReasoningIgnored, "conversation.messages[1].extra_json"),
        (pb::WarningCode::ToolsIgnored, "conversation.tools[0].function.parameters_json"),
        (pb::WarningCode::DocumentsIgnored, "conversation.documents[0].document_json"),
        (pb::WarningCode::MessageIgnored, "conversation.messages[0].text"),
        (pb::WarningCode::MessageIgnored, "conversation.messages[2].extra_json"),
    ];
    assert_eq!(found, expected);
    found.iter().for_each(|(_, path)| check_path(RENDER_REQUEST, path));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_template_names_the_messages_without_content() {
    let empty = || chat::ChatMessage { role: "user".to_owned(), ..chat::ChatMessage::default() };
    let cases = [
        ("{% for m in messages %}{{ m.role + m.content }}{% endfor %}", "conversation.messages[1]"),
        ("{% for m in messages %}{{ m.role + m.name }}{% endfor %}", "conversation"),
    ];
    let mut messages = Vec::new();
    for (template, path) in cases {
        let (_service, mut client) = serve(template).await;
        let conversation = conversation(vec![text("user", "a"), empty(), empty()]);
        let status = client.render(request(conversation)).await.expect_err("the template fails");
        let failure = failed(&status);
        assert_eq!(failure.reason, "TEMPLATE_FAILED");
        let field = failure.field.expect("a field");
        assert!(field == path || (field.starts_with(path) && !field.contains('[')), "{field}");
        check_path(RENDER_REQUEST, &field);
        messages.push(status.message().to_owned());
    }
    error_texts::check_rows("render/without-content", messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_with_an_image_processor_takes_images_without_a_warning() {
    let image = || image_block(chat::media_block::Source::Location("a.png".to_owned()));
    let model = ModelFolder::new("vision").with_template("{{ messages[0].content }}");
    std::fs::write(model.path().join("preprocessor_config.json"), "{}").expect("the folder is writable");
    let service = render_service(&[model.path()], None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let response = client.render(request(conversation(vec![blocks("user", vec![image()])]))).await.expect("renders");
    assert_eq!(response.into_inner().warnings, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn media_data_can_stay_out_of_responses() {
    use chat::media_block::Source;
    let image = |source| image_block(source);
    let data = || image(Source::Base64("QUJD".repeat(1000)));
    let url = || image(Source::Location("https://host/a.png".to_owned()));
    let messages =
        vec![text("user", "a"), blocks("user", vec![text_block("b"), data(), url(), result_of(vec![data()])])];
    let request = |conversation| pb::RenderRequest { omit_media: true, ..request(conversation) };
    let (_service, mut client) = serve("{{ messages[0].content }} image").await;
    let response = client.render(request(conversation(messages.clone()))).await.expect("renders").into_inner();
    let Some(pb::render_response::Output::HfMessages(pb::HfMessages { messages_json, .. })) = response.output else {
        panic!("no HF messages")
    };
    let root = "conversation.messages[1].blocks.blocks";
    let expected = json!([
        {"role": "user", "content": "a"},
        {"role": "tool", "content": [
            {"type": "image", "field": format!("{root}[3].tool_result.blocks.blocks[0].image")},
        ]},
        {"role": "user", "content": [
            {"type": "text", "text": "b"},
            {"type": "image", "field": format!("{root}[1].image")},
            {"type": "image", "url": "https://host/a.png"},
        ]},
    ]);
    assert_eq!(messages_json, expected.to_string());

    // An adapter with media returns attachments.
    let options = Some(pb::RenderOptions { adapter: Some("gemma-4".to_owned()), ..Default::default() });
    let pinned = pb::RenderRequest { options, ..request(conversation(messages)) };
    let response = client.render(pinned).await.expect("renders").into_inner();
    let Some(pb::render_response::Output::Prompt(prompt)) = response.output else { panic!("no prompt") };
    let sources: Vec<_> =
        prompt.attachments.into_iter().map(|attachment| (attachment.path, attachment.source)).collect();
    let location = pb::attachment::Source::Location("https://host/a.png".to_owned());
    let expected = [
        (format!("{root}[1].image"), None),
        (format!("{root}[2].image"), Some(location)),
        (format!("{root}[3].tool_result.blocks.blocks[0].image"), None),
    ];
    assert_eq!(sources, expected);
}
