//! Typed blocks: the JSON that templates read for each kind.

use serde_json::{Value, json};
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::chat::v1::block::Kind;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_tests::conversations::{blocks, conversation, prompt, request, serve, text, text_block};
use tandem_tests::failure::is_failed;
use tandem_tests::{ModelFolder, answer, error_texts, render_service};
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

/// Returns a JSON conversation with a call and its result as typed blocks, and the same conversation
/// with `tool_calls` and a message of the tool.
fn both_forms(arguments: &Value) -> [Value; 2] {
    let text = |text: &str| json!({"type": "text", "text": text});
    let input = json!({"city": "Paris", "days": 2.0});
    let blocks = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [
            text("Let me "), text("look."), {"type": "tool_use", "id": "abcdefghi", "name": "w", "input": input},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "abcdefghi", "content": [text("sun"), text("ny")]}, text("And?"),
        ]},
    ]);
    let call = json!({"id": "abcdefghi", "type": "function", "function": {"name": "w", "arguments": arguments}});
    let calls = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "sunny"},
        {"role": "user", "content": "And?"},
    ]);
    [json!({"messages": blocks}), json!({"messages": calls})]
}

#[test]
fn typed_calls_and_results_become_calls_and_messages_of_the_tool() {
    let object = json!({"city": "Paris", "days": 2.0});
    let text = json!(r#"{"city": "Paris", "days": 2.0}"#);
    let walk = |arguments: &str| {
        format!(
            "{{% for m in messages %}}{{% for c in m.tool_calls %}}{{{{ {arguments} }}}}{{% endfor %}}{{% endfor %}}"
        )
    };
    let templates = [
        (SHOW_ALL.to_owned(), &object),
        (format!("{SHOW_ALL}{}", walk("c.function.arguments | tojson")), &object),
        (format!("{SHOW_ALL}{}", walk("'a' + c.function.arguments")), &text),
    ];
    for (template, arguments) in templates {
        let models = ModelFolder::new("tiny").with_template(&template).models();
        let [blocks, calls] = both_forms(arguments).map(|request| answer(&models, &request));
        assert!(blocks["prompt"].is_string(), "{blocks}");
        assert_eq!(blocks["prompt"], calls["prompt"], "{template}");
        assert_eq!(blocks["warnings"], json!([]));
    }
}

const SHOW_ALL: &str = "{{ messages | tojson }}";

/// Returns the messages that a template gets.
fn rewritten(messages: Value) -> Value {
    let models = ModelFolder::new("tiny").with_template(SHOW_ALL).models();
    let answer = answer(&models, &json!({"messages": messages}));
    let prompt = answer["prompt"].as_str().unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str(prompt).expect("JSON")
}

#[test]
fn converted_blocks_keep_their_other_keys_and_need_no_ids() {
    let call = json!({"type": "tool_use", "name": "w", "cache": 1});
    let results = json!([
        {"type": "text", "text": "a"},
        {"type": "tool_result", "is_error": true, "content": null},
        {"type": "tool_result", "tool_use_id": "2", "content": "x", "name": "w"},
    ]);
    let earlier = json!([{"id": "0", "type": "function", "function": {"name": "v", "arguments": {}}}]);
    let found = rewritten(json!([
        {"role": "assistant", "content": [call], "tool_calls": earlier, "name": "n"},
        {"role": "user", "content": results, "name": "ann"},
        {"role": "tool", "tool_call_id": "3", "name": "w", "content": [{"type": "tool_result", "content": "y"}]},
    ]));
    let added = json!({"type": "function", "function": {"name": "w", "arguments": {}}, "cache": 1});
    assert_eq!(
        found,
        json!([
            {"role": "assistant", "content": "", "tool_calls": [earlier[0], added], "name": "n"},
            {"role": "tool", "content": "", "is_error": true},
            {"role": "tool", "tool_call_id": "2", "content": "x", "name": "w"},
            {"role": "user", "content": "a", "name": "ann"},
            {"role": "tool", "content": "y", "tool_call_id": "3", "name": "w"},
        ])
    );
}

#[test]
fn a_typed_block_that_cannot_be_converted_is_named_by_path() {
    let models = ModelFolder::new("tiny").with_template(SHOW_ALL).models();
    let mut texts = Vec::new();
    let mut check = |role: &str, block: Value, reason: &str, field: &str| {
        let content = json!([{"type": "text", "text": "a"}, block]);
        let request = json!({"messages": [{"role": "user", "content": "a"}, {"role": role, "content": content}]});
        let found = answer(&models, &request);
        let field = format!("messages[1].{field}");
        assert_eq!((&found["error"]["reason"], &found["error"]["field"]), (&json!(reason), &json!(field)), "{found}");
        texts.push(found["error"]["message"].as_str().expect("a message").to_owned());
    };
    let call = |name: Value, input: Value| json!({"type": "tool_use", "name": name, "input": input});
    let result = |content: Value| json!({"type": "tool_result", "content": content});
    check("assistant", call(json!(""), json!({})), "INVALID_REQUEST", "content[1].name");
    check("assistant", call(json!(null), json!({})), "INVALID_REQUEST", "content[1].name");
    check("assistant", call(json!("f"), json!([1])), "INVALID_REQUEST", "content[1].input");
    check("user", call(json!("f"), json!({})), "UNKNOWN_BLOCK", "content[1]");
    check("assistant", result(json!("x")), "UNKNOWN_BLOCK", "content[1]");
    check("system", result(json!("x")), "UNKNOWN_BLOCK", "content[1]");
    check("tool", result(json!("x")), "INVALID_REQUEST", "content");
    check("user", result(json!(5)), "INVALID_REQUEST", "content[1].content");
    check("user", result(json!([result(json!("x"))])), "UNKNOWN_BLOCK", "content[1].content[0]");
    check("user", result(json!([{"type": "hologram"}])), "UNKNOWN_BLOCK", "content[1].content[0]");
    error_texts::check_rows("render/typed-blocks", texts);
}

#[test]
fn a_template_that_walks_typed_blocks_gets_them() {
    let walks = "{% for m in messages %}{% for b in m.content %}{% if b.type == 'tool_use' %}<{{ b.name }}>\
                 {% elif b.type == 'tool_result' %}[{{ b.content[0].text }}]{% endif %}{% endfor %}{{ m.tool_call_id }}\
                 {% endfor %}";
    let [blocks, _] = both_forms(&json!({}));
    let rendered = |template: &str| answer(&ModelFolder::new("tiny").with_template(template).models(), &blocks);
    assert_eq!(rendered(walks)["prompt"], "<w>[sun]");
    // A string alone does not show a block.
    assert_eq!(
        rendered("{{ 'tool_result' }}{% for m in messages %}{{ m.tool_call_id }}{% endfor %}")["prompt"],
        "tool_resultabcdefghi"
    );
}

#[test]
fn plain_shows_typed_blocks_as_text() {
    let [blocks, _] = both_forms(&json!({}));
    let rendered = answer(&ModelFolder::new("tiny").models(), &blocks);
    let call = r#"<tool_call>
{"name": "w", "arguments": {"city": "Paris", "days": 2.0}}
</tool_call>"#;
    assert_eq!(rendered["prompt"], format!("q\nLet me look.\n{call}\n<tool_result>sunny</tool_result>And?"));
}

#[test]
fn images_beside_typed_blocks_reach_hf_messages_as_calls_and_messages_of_the_tool() {
    let image = |data: &str| json!({"type": "image", "base64": data});
    let text = json!({"type": "text", "text": "See"});
    let messages = json!([
        {"role": "user", "content": [image("QQ==")]},
        {"role": "assistant", "content": [text, {"type": "tool_use", "id": "1", "name": "w", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [image("Qg==")]}, text, image("Qw==")]},
    ]);
    let answered = answer(&ModelFolder::new("tiny").with_template(SHOW_ALL).models(), &json!({"messages": messages}));
    let call = json!({"id": "1", "type": "function", "function": {"name": "w", "arguments": {}}});
    assert_eq!(
        answered["hf_messages"],
        json!([
            {"role": "user", "content": [image("QQ==")]},
            {"role": "assistant", "content": [text], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": [image("Qg==")]},
            {"role": "user", "content": [text, image("Qw==")]},
        ])
    );
}

/// The template of SmolVLM and others shows no content but lists. gen-svc renders HF messages with it.
#[test]
fn a_text_becomes_a_list_for_a_template_that_shows_only_lists() {
    let template = "{% for m in messages %}{{ m.role }}:{% for b in m.content %}{{ '<image>' if b.type == 'image' else b.text }}{% endfor %};{% endfor %}";
    let models = ModelFolder::new("tiny").with_template(template).models();
    let said = |role: &str, content: Value| json!({"role": role, "content": content});
    let list = |text: &str| json!([{"type": "text", "text": text}]);
    let messages =
        json!([said("system", json!("Be kind")), said("user", json!("Hi")), said("assistant", json!("Yes"))]);
    let rendered = answer(&models, &json!({"messages": messages, "add_generation_prompt": false}));
    assert_eq!(
        (&rendered["prompt"], &rendered["warnings"]),
        (&json!("system:Be kind;user:Hi;assistant:Yes;"), &json!([]))
    );
    let as_sent = answer(&models, &json!({"messages": messages, "normalization": "none"}));
    assert_eq!(as_sent["prompt"], "system:;user:;assistant:;", "without normalization, as in transformers");

    let image = json!({"type": "image", "base64": "aGk="});
    let seen = json!([said("user", json!([image])), said("assistant", json!("A dog")), said("user", json!("Sure?"))]);
    let rendered = answer(&models, &json!({"messages": seen}));
    let expected = json!([said("user", json!([image])), said("assistant", list("A dog")), said("user", list("Sure?"))]);
    assert_eq!(rendered["hf_messages"], expected);
}
