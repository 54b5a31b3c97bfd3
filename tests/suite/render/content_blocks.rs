//! Typed blocks: the JSON that templates read for each kind.

use serde_json::{Value, json};
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::chat::v1::block::Kind;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_tests::conversations::{blocks, conversation, prompt, request, serve, text, text_block};
use tandem_tests::failure::is_failed;
use tandem_tests::{ModelFolder, render_service};
use tonic::Code;

const SHOW: &str = "{{ messages[0].content | tojson }}";

async fn shown(kind: Kind) -> Value {
    let (_service, mut client) = serve(SHOW).await;
    // Without normalization, so that blocks reach a template that does not read them.
    let options = pb::RenderOptions { normalization: pb::Normalization::None.into(), ..Default::default() };
    let request =
        pb::RenderRequest { options: Some(options), ..request(conversation(vec![blocks("user", vec![kind])])) };
    let response = client.render(request).await;
    let content = prompt(response.expect("renders").into_inner());
    serde_json::from_str::<Value>(&content).expect("JSON")[0].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn audio_and_video_blocks_have_hugging_face_shapes() {
    use chat::media_block::Source;
    let block = |source| chat::MediaBlock { source: Some(source), mime_type: String::new() };
    let wave = chat::MediaBlock { mime_type: "audio/wav".to_owned(), ..block(Source::Data(b"ABC".to_vec())) };
    assert_eq!(shown(Kind::Audio(wave)).await, json!({"type": "audio", "base64": "QUJD", "mime_type": "audio/wav"}));
    let location = Source::Location("a.wav".to_owned());
    assert_eq!(shown(Kind::Audio(block(location))).await, json!({"type": "audio", "url": "a.wav"}));
    let id = Source::AttachmentId("v1".to_owned());
    assert_eq!(shown(Kind::Video(block(id))).await, json!({"type": "video", "attachment_id": "v1"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_use_and_tool_result_blocks_keep_key_order() {
    let call = chat::ToolUseBlock {
        id: Some("c".to_owned()),
        name: "f".to_owned(),
        input_json: r#"{"z": 1.0, "a": 2}"#.to_owned(),
    };
    let shown_call = shown(Kind::ToolUse(call)).await;
    assert_eq!(shown_call.to_string(), r#"{"type":"tool_use","id":"c","name":"f","input":{"z":1.0,"a":2}}"#);
    let inner = chat::BlockList { blocks: vec![chat::Block { kind: Some(text_block("4")) }] };
    let result = chat::ToolResultBlock {
        tool_use_id: Some("c".to_owned()),
        content: Some(chat::tool_result_block::Content::Blocks(inner)),
        is_error: Some(true),
    };
    let expected = json!({
        "type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "4"}], "is_error": true
    });
    assert_eq!(shown(Kind::ToolResult(result)).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_block_is_named_by_path() {
    let (_service, mut client) = serve(SHOW).await;
    let mut check = async |case: &str, kind: Kind, field: &str| {
        let result = client.render(request(conversation(vec![blocks("user", vec![kind])]))).await;
        is_failed(case, result, Code::InvalidArgument, "INVALID_REQUEST", Some(field));
    };
    let sourceless = Kind::Audio(chat::MediaBlock::default());
    check("blocks/audio-without-source", sourceless, "conversation.messages[0].blocks.blocks[0].audio").await;
    let nameless = chat::ToolUseBlock { name: String::new(), ..Default::default() };
    let tool_use = |field: &str| format!("conversation.messages[0].blocks.blocks[0].tool_use.{field}");
    check("blocks/tool-use-without-name", Kind::ToolUse(nameless), &tool_use("name")).await;
    let list = chat::ToolUseBlock { name: "f".to_owned(), input_json: "[]".to_owned(), id: None };
    check("blocks/tool-use-input", Kind::ToolUse(list), &tool_use("input_json")).await;
    let empty = chat::BlockList { blocks: vec![chat::Block { kind: None }] };
    let content = Some(chat::tool_result_block::Content::Blocks(empty));
    let result = chat::ToolResultBlock { content, ..Default::default() };
    let field = "conversation.messages[0].blocks.blocks[0].tool_result.blocks.blocks[0]";
    check("blocks/block-without-kind", Kind::ToolResult(result), field).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn block_type_the_template_never_mentions_is_rejected() {
    let audio = || {
        let source = Some(chat::media_block::Source::Base64("QUJD".to_owned()));
        conversation(vec![blocks(
            "user",
            vec![text_block("a"), Kind::Audio(chat::MediaBlock { source, ..Default::default() })],
        )])
    };
    let (_service, mut client) = serve(SHOW).await;
    let refused = client.render(request(audio())).await;
    is_failed(
        "blocks/not-in-template",
        refused,
        Code::InvalidArgument,
        "UNKNOWN_BLOCK",
        Some("conversation.messages[0].blocks.blocks[1].audio"),
    );
    let knows = "{% for b in messages[0].content %}{{ '<audio>' if b.type == 'audio' else b.text }}{% endfor %}";
    let (_service, mut client) = serve(knows).await;
    assert_eq!(prompt(client.render(request(audio())).await.expect("renders").into_inner()), "a<audio>");
}

/// Returns a typed conversation: a question in blocks, a tool call with these arguments, and the
/// tool's result.
fn called(arguments_json: &str) -> chat::Conversation {
    let call =
        chat::ToolCall { id: Some("c".to_owned()), name: "f".to_owned(), arguments_json: arguments_json.to_owned() };
    let asked = blocks("user", vec![text_block("Wh"), text_block("y?")]);
    let calls = chat::ChatMessage {
        tool_calls: vec![call],
        reasoning_content: Some("Hm.".to_owned()),
        ..text("assistant", "")
    };
    let answered = chat::ChatMessage { tool_call_id: Some("c".to_owned()), ..text("tool", "4") };
    conversation(vec![asked, calls, answered])
}

/// Returns the same conversation with the call and its result as blocks.
fn called_by_blocks() -> chat::Conversation {
    let call = chat::ToolUseBlock {
        id: Some("c".to_owned()),
        name: "f".to_owned(),
        input_json: r#"{"a": 1.0, "b": "x"}"#.to_owned(),
    };
    let result = chat::ToolResultBlock {
        tool_use_id: Some("c".to_owned()),
        content: Some(chat::tool_result_block::Content::Text("4".to_owned())),
        is_error: None,
    };
    let asked = blocks("user", vec![text_block("Why?")]);
    let calls = chat::ChatMessage {
        reasoning_content: Some("Hm.".to_owned()),
        ..blocks("assistant", vec![text_block(""), Kind::ToolUse(call)])
    };
    conversation(vec![asked, calls, blocks("user", vec![Kind::ToolResult(result)])])
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_call_forms_render_alike_in_every_family() {
    let families = [
        ("deepseek_v32", r#"<｜DSML｜parameter name="a" string="false">1.0</｜DSML｜parameter>"#),
        ("deepseek_v4", r#"<｜DSML｜parameter name="a" string="false">1.0</｜DSML｜parameter>"#),
        ("gemma4", "call:f{a:1.0,b:<|\"|>x<|\"|>}"),
    ];
    for (architecture, written) in families {
        let service = render_service(&[ModelFolder::new("tiny").with_architecture(architecture).path()], None).await;
        let mut client = RenderServiceClient::new(service.channel().await);
        let mut rendered =
            async |said: chat::Conversation| prompt(client.render(request(said)).await.expect("renders").into_inner());
        let by_object = rendered(called(r#"{"a": 1.0, "b": "x"}"#)).await;
        assert!(by_object.contains(written) && by_object.contains("Why?"), "{architecture}: {by_object}");
        assert_eq!(rendered(called(r#""{\"a\": 1.0, \"b\": \"x\"}""#)).await, by_object, "{architecture}");
        assert_eq!(rendered(called_by_blocks()).await, by_object, "{architecture}");
    }
}
