//! Rendering over gRPC: answers to conversations of every shape that the contract allows.

use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::registry_service_client::RegistryServiceClient;
use tandem_common::pb::render::v1::render_response::Output;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_tests::conversations::{blocks, conversation, image_block, prompt, request, serve, text, text_block};
use tandem_tests::failure::is_failed;
use tandem_tests::{ModelFolder, default_model, error_texts, goldens, render_service};
use tonic::Code;
use tonic_types::StatusExt;

/// Prints every part of a conversation that a template can see.
const SHOW: &str = "{{ bos_token }}{{ tools | tojson }}{% for m in messages %}[{{ m | tojson }}]{% endfor %}\
                    {% if flag is defined %}{{ flag }}{% endif %}{% if add_generation_prompt %}>{% endif %}";

#[tokio::test(flavor = "multi_thread")]
async fn prompt_and_token_ids_match_transformers() {
    let service = render_service(&[default_model()], None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    for golden in goldens() {
        let messages = golden.messages.iter().map(|m| text(str(&m["role"]), str(&m["content"]))).collect();
        let request = pb::RenderRequest { return_token_ids: true, ..request(conversation(messages)) };
        let response = client.render(request).await.expect("renders").into_inner();
        assert_eq!(response.resolution.as_ref().expect("resolved").adapter, "tokenizer-template");
        let Some(Output::Prompt(prompt)) = response.output else { panic!("no prompt") };
        assert_eq!(prompt.text, golden.prompt, "{}", golden.id);
        assert_eq!(prompt.token_ids, golden.prompt_ids, "{}", golden.id);
    }
}

fn str(value: &serde_json::Value) -> &str {
    value.as_str().expect("a string")
}

#[tokio::test(flavor = "multi_thread")]
async fn template_receives_every_field_in_hugging_face_shape() {
    let (_service, mut client) = serve(SHOW).await;
    let call = chat::ToolCall {
        id: Some("c1".to_owned()),
        name: "f".to_owned(),
        arguments_json: r#"{"z": 1.0, "a": 12345678901234567890123}"#.to_owned(),
    };
    let assistant = chat::ChatMessage {
        role: "assistant".to_owned(),
        tool_calls: vec![call],
        extra_json: Some(r#"{"weight": 1}"#.to_owned()),
        ..chat::ChatMessage::default()
    };
    let tool =
        chat::ChatMessage { tool_call_id: Some("c1".to_owned()), name: Some("f".to_owned()), ..text("tool", "4") };
    let function = chat::FunctionTool {
        name: "f".to_owned(),
        description: Some("d".to_owned()),
        parameters_json: Some(r#"{"type": "object"}"#.to_owned()),
    };
    let conversation = chat::Conversation {
        messages: vec![assistant, tool],
        tools: vec![chat::Tool { kind: Some(chat::tool::Kind::Function(function)) }],
        documents: Vec::new(),
        template_args_json: Some(r#"{"flag": true}"#.to_owned()),
    };
    let rendered = prompt(client.render(request(conversation)).await.expect("renders").into_inner());
    // A null content is dropped, as in transformers.
    assert_eq!(
        rendered,
        concat!(
            r#"<s>[{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]"#,
            r#"[{"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "#,
            r#""arguments": {"z": 1.0, "a": 12345678901234567890123}}}], "weight": 1}]"#,
            r#"[{"role": "tool", "content": "4", "tool_call_id": "c1", "name": "f"}]True>"#,
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_given_as_a_json_string_stay_a_string() {
    let (_service, mut client) = serve("{{ messages[0].tool_calls[0].function.arguments }}").await;
    let arguments_json = r#""{\"a\": 1}""#.to_owned();
    let call = chat::ToolCall { id: None, name: "f".to_owned(), arguments_json };
    let message =
        chat::ChatMessage { role: "assistant".to_owned(), tool_calls: vec![call], ..chat::ChatMessage::default() };
    let response = client.render(request(conversation(vec![message]))).await.expect("renders");
    assert_eq!(prompt(response.into_inner()), r#"{"a": 1}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_blocks_are_joined_and_the_generation_prompt_can_be_left_out() {
    let (_service, mut client) = serve(SHOW).await;
    let message = blocks("user", vec![text_block("a"), text_block("b")]);
    let options = pb::RenderOptions { add_generation_prompt: Some(false), ..pb::RenderOptions::default() };
    let request = pb::RenderRequest { options: Some(options), ..request(conversation(vec![message])) };
    let rendered = prompt(client.render(request).await.expect("renders").into_inner());
    assert_eq!(rendered, r#"<s>null[{"role": "user", "content": "ab"}]"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_final_message_can_be_continued() {
    let (_service, mut client) = serve("{% for m in messages %}<{{ m.content }}>{% endfor %}").await;
    let options = pb::RenderOptions { continue_final_message: Some(true), ..pb::RenderOptions::default() };
    let messages = vec![text("user", "a"), text("assistant", "b")];
    let request = pb::RenderRequest { options: Some(options), ..request(conversation(messages)) };
    assert_eq!(prompt(client.render(request).await.expect("renders").into_inner()), "<a><b");
}

#[tokio::test(flavor = "multi_thread")]
async fn template_time_is_the_request_render_time() {
    let (_service, mut client) = serve("{{ strftime_now('%d %b %Y %H:%M:%S') }}").await;
    let options = pb::RenderOptions { render_time: Some("2025-07-04T09:05:03".to_owned()), ..Default::default() };
    let request = pb::RenderRequest { options: Some(options), ..request(conversation(vec![text("user", "")])) };
    assert_eq!(prompt(client.render(request).await.expect("renders").into_inner()), "04 Jul 2025 09:05:03");
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_with_images_returns_hf_messages() {
    let (_service, mut client) = serve(SHOW).await;
    let source = Some(chat::media_block::Source::Data(vec![0xff, 0xd8, 0xff]));
    let jpeg = chat::MediaBlock { source, mime_type: "image/jpeg".to_owned() };
    let message = blocks(
        "user",
        vec![
            text_block("look"),
            image_block(chat::media_block::Source::Base64("QUJD".to_owned())),
            chat::block::Kind::Image(jpeg),
        ],
    );
    let response = client.render(request(conversation(vec![message]))).await.expect("renders").into_inner();
    let Some(Output::HfMessages(messages)) = response.output else { panic!("no HF messages") };
    assert_eq!(
        messages.messages_json,
        concat!(
            r#"[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","base64":"QUJD"},"#,
            r#"{"type":"image","base64":"/9j/","mime_type":"image/jpeg"}]}]"#,
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_plain_adapter_renders_images_and_warns_of_ignored_input() {
    let (_service, mut client) = serve(SHOW).await;
    let image = image_block(chat::media_block::Source::Base64("QUJD".to_owned()));
    let messages = vec![text("system", "s"), blocks("user", vec![text_block("a "), image])];
    let tool = chat::Tool { kind: Some(chat::tool::Kind::ToolJson("{}".to_owned())) };
    let conversation = chat::Conversation {
        tools: vec![tool],
        template_args_json: Some(r#"{"x": 1}"#.to_owned()),
        ..conversation(messages)
    };
    let options = pb::RenderOptions { adapter: Some("plain".to_owned()), ..pb::RenderOptions::default() };
    let request = pb::RenderRequest { options: Some(options), ..request(conversation) };
    let response = client.render(request).await.expect("renders").into_inner();
    let warnings: Vec<_> = response.warnings.iter().map(|w| (w.code(), w.path.as_str())).collect();
    let ignored = [
        (pb::WarningCode::ImagesIgnored, "conversation.messages[1].blocks.blocks[1].image"),
        (pb::WarningCode::ToolsIgnored, "conversation.tools"),
        (pb::WarningCode::TemplateArgsIgnored, "conversation.template_args_json"),
    ];
    assert_eq!(warnings, ignored);
    assert_eq!(prompt(response), "s\na <image>");
}

#[tokio::test(flavor = "multi_thread")]
async fn model_without_template_uses_plain_and_the_reason_is_reported() {
    let model = ModelFolder::new("bare");
    let service = render_service(&[model.path()], None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let messages = vec![text("user", "a"), text("assistant", "b")];
    let response = client.render(request(conversation(messages))).await.expect("renders").into_inner();
    let resolution = response.resolution.clone().expect("resolved");
    assert_eq!(resolution.adapter, "plain");
    let rejected = resolution.rejected.iter().find(|rejected| rejected.adapter == "tokenizer-template");
    let rejected = rejected.expect("the template adapter comes before plain");
    error_texts::check("resolution/no-template", &rejected.reason);
    assert_eq!(prompt(response), "a\nb");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_message_field_is_named_by_path() {
    let (_service, mut client) = serve(SHOW).await;
    let mut check = async |case: &str, message: chat::ChatMessage, field: &str| {
        let result = client.render(request(conversation(vec![text("user", "a"), message]))).await;
        is_failed(case, result, Code::InvalidArgument, "INVALID_REQUEST", Some(field));
    };
    check("render/no-role", text("", "a"), "conversation.messages[1].role").await;
    let broken = chat::ChatMessage { extra_json: Some("{".to_owned()), ..text("user", "a") };
    check("render/extra-json", broken, "conversation.messages[1].extra_json").await;
    let role = chat::ChatMessage { extra_json: Some(r#"{"role": "x"}"#.to_owned()), ..text("user", "a") };
    check("render/extra-role", role, "conversation.messages[1].extra_json").await;
    let call = chat::ToolCall { id: None, name: "f".to_owned(), arguments_json: "{a}".to_owned() };
    let message = chat::ChatMessage { tool_calls: vec![call], ..text("assistant", "a") };
    check("render/arguments-json", message, "conversation.messages[1].tool_calls[0].arguments_json").await;
    let empty = chat::block::Kind::Image(chat::MediaBlock::default());
    let sourceless = blocks("user", vec![text_block("a"), empty]);
    check("render/image-without-source", sourceless, "conversation.messages[1].blocks.blocks[1].image").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_block_beside_an_image_is_rejected_by_name() {
    let (_service, mut client) = serve(SHOW).await;
    let image = image_block(chat::media_block::Source::Base64("QUJD".to_owned()));
    let other = chat::block::Kind::OtherJson(r#"{"type": "hologram"}"#.to_owned());
    let result = client.render(request(conversation(vec![blocks("user", vec![image, other])]))).await;
    let field = Some("conversation.messages[0].blocks.blocks[1]");
    is_failed("render/unknown-block", result, Code::InvalidArgument, "UNKNOWN_BLOCK", field);
}

#[tokio::test(flavor = "multi_thread")]
async fn template_exception_message_reaches_the_caller() {
    let (_service, mut client) = serve("a\n{{ raise_exception('no ' ~ messages[0].role ~ ' here') }}").await;
    let result = client.render(request(conversation(vec![text("user", "a")]))).await;
    let status = result.as_ref().expect_err("the template raises an error");
    assert_eq!(status.get_details_error_info().expect("info").metadata["line"], "2");
    is_failed(
        "render/template-raised",
        result,
        Code::InvalidArgument,
        "TEMPLATE_RAISED",
        Some("conversation.messages"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_requests_name_their_reason() {
    let (_service, mut client) = serve(SHOW).await;
    let hello = || request(conversation(vec![text("user", "a")]));
    let unknown = client.render(pb::RenderRequest { model: "x".to_owned(), ..hello() }).await;
    is_failed("render/model-not-found", unknown, Code::NotFound, "MODEL_NOT_FOUND", Some("model"));
    // The message quotes the request's model name. The status must still fit into its headers.
    let long = client.render(pb::RenderRequest { model: "😀".repeat(20_000), ..hello() }).await;
    assert!(long.as_ref().expect_err("no model has this name").message().len() < 2000);
    is_failed("render/model-not-found-long", long, Code::NotFound, "MODEL_NOT_FOUND", Some("model"));
    let ids = client.render(pb::RenderRequest { return_token_ids: true, ..hello() }).await;
    is_failed("render/no-tokenizer", ids, Code::FailedPrecondition, "NO_TOKENIZER", Some("model"));
    let empty = client.render(request(conversation(vec![]))).await;
    is_failed("render/no-messages", empty, Code::InvalidArgument, "INVALID_REQUEST", Some("conversation.messages"));
    let with = |options| pb::RenderRequest { options: Some(options), ..hello() };
    let adapter = pb::RenderOptions { adapter: Some("x".to_owned()), ..Default::default() };
    let unknown = client.render(with(adapter)).await;
    is_failed("render/adapter-not-found", unknown, Code::NotFound, "ADAPTER_NOT_FOUND", Some("options.adapter"));
    let time = pb::RenderOptions { render_time: Some("tomorrow".to_owned()), ..Default::default() };
    let malformed = client.render(with(time)).await;
    is_failed("render/render-time", malformed, Code::InvalidArgument, "INVALID_REQUEST", Some("options.render_time"));
    let both = pb::RenderOptions {
        add_generation_prompt: Some(true),
        continue_final_message: Some(true),
        ..Default::default()
    };
    let field = Some("options.add_generation_prompt");
    let both = client.render(with(both)).await;
    is_failed("render/prompt-and-continuation", both, Code::InvalidArgument, "INVALID_REQUEST", field);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_models_reports_metadata_and_special_tokens() {
    let bare = ModelFolder::new("bare");
    let service = render_service(&[default_model(), bare.path()], None).await;
    let mut client = RegistryServiceClient::new(service.channel().await);
    let models = client.list_models(pb::ListModelsRequest {}).await.expect("lists").into_inner().models;
    let ids: Vec<_> = models.iter().map(|model| model.id.as_str()).collect();
    assert_eq!(ids, ["SmolLM2-135M-Instruct-Q4_1", "bare"]);
    let smol = &models[0];
    assert_eq!(
        (smol.architecture.as_str(), smol.context_length, smol.adapter.as_str()),
        ("llama", 8192, "tokenizer-template")
    );
    let eos = smol.special_tokens.iter().find(|token| token.name == "eos_token").expect("an eos token");
    assert_eq!((eos.text.as_str(), eos.id), ("<|im_end|>", Some(2)));
    assert_eq!(models[1].adapter, "plain");
}

#[tokio::test(flavor = "multi_thread")]
async fn detokenize_restores_the_tokenized_text() {
    let service = render_service(&[default_model()], None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let text = "<|im_start|>naïve 日本語 👩‍👩‍👧 12 345\n\t";
    let request = pb::TokenizeRequest { text: text.to_owned(), ..Default::default() };
    let token_ids = client.tokenize(request).await.expect("tokenizes").into_inner().token_ids;
    assert_eq!(token_ids[0], 1, "control tokens in a prompt count");
    let request = pb::DetokenizeRequest { token_ids, ..Default::default() };
    assert_eq!(client.detokenize(request).await.expect("detokenizes").into_inner().text, text);
    let request = pb::DetokenizeRequest { token_ids: vec![1, 1_000_000], ..Default::default() };
    let unknown = client.detokenize(request).await;
    is_failed("render/unknown-token-id", unknown, Code::InvalidArgument, "INVALID_REQUEST", Some("token_ids[1]"));
}
