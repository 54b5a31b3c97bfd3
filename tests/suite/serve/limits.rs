//! The limits of one request: each limit has a flag and an error.

use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{GenerateRequest, Resume, Stop, TokenIds};
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_core::engine::{Config, DtypeChoice};
use tandem_tests::Generation;
use tandem_tests::failure::is_failed;
use tandem_tests::{ModelFolder, Process, binary, default_model};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const TEMPLATE: &str = "{% if messages[0].content == 'spin' %}{% for i in range(9000) %}{% for i in range(9000) %}\
    {% endfor %}{% endfor %}{% endif %}\
    {% if messages[0].content == 'hoard' %}{% set hoard = 'x' * 300000000 %}{% endif %}{{ messages[0].content }}";

/// Returns the first bytes of a PNG file: its signature, and the header with its size (PNG
/// specification, 5.2 and 11.2.2).
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes().into_iter().chain(height.to_be_bytes()).chain([8, 2, 0, 0, 0]));
    bytes
}

fn text(text: &str) -> chat::chat_message::Content {
    chat::chat_message::Content::Text(text.to_owned())
}

/// Returns images of these widths and heights.
fn images(sizes: &[[u32; 2]]) -> chat::chat_message::Content {
    let image = |&[width, height]: &[u32; 2]| {
        let source = Some(chat::media_block::Source::Data(png(width, height)));
        let image = chat::MediaBlock { source, mime_type: "image/png".to_owned() };
        chat::Block { kind: Some(chat::block::Kind::Image(image)) }
    };
    chat::chat_message::Content::Blocks(chat::BlockList { blocks: sizes.iter().map(image).collect() })
}

async fn render(channel: &Channel, content: chat::chat_message::Content) -> Result<(), Status> {
    let message = chat::ChatMessage { role: "user".to_owned(), content: Some(content), ..chat::ChatMessage::default() };
    let conversation = Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() });
    let request = RenderRequest { conversation, ..RenderRequest::default() };
    RenderServiceClient::new(channel.clone()).render(request).await.map(drop)
}

async fn is_refused(case: &str, channel: &Channel, content: chat::chat_message::Content, reason: &str, field: &str) {
    is_failed(case, render(channel, content).await, Code::InvalidArgument, reason, Some(field));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_render_limit_has_an_error_reason() {
    let model = ModelFolder::new("tiny").with_template(TEMPLATE);
    let path = model.path().display().to_string();
    let flags = [
        ["--max-prompt-bytes", "50"],
        ["--max-images", "2"],
        ["--max-image-pixels", "5000"],
        ["--max-message-bytes", "2000"],
    ];
    let command: Vec<&str> = ["render-svc", "--models", &path].into_iter().chain(flags.into_iter().flatten()).collect();
    let process = Process::start("127.0.0.1:0", &command);
    let endpoint = Endpoint::from_shared(format!("http://{}", process.address)).expect("an address");
    let channel = endpoint.connect().await.expect("it answers");
    let block = |i: usize| format!("conversation.messages[0].blocks.blocks[{i}].image");

    render(&channel, text(&"a".repeat(50))).await.expect("a prompt");
    is_refused("limits/prompt-bytes", &channel, text(&"a".repeat(51)), "PROMPT_TOO_LARGE", "conversation.messages")
        .await;
    is_refused("limits/template-steps", &channel, text("spin"), "TEMPLATE_LIMIT", "conversation.messages").await;
    is_refused("limits/template-bytes", &channel, text("hoard"), "TEMPLATE_LIMIT", "conversation.messages").await;
    render(&channel, images(&[[100, 50], [50, 100]])).await.expect("messages");
    is_refused("limits/images", &channel, images(&[[1, 1]; 3]), "TOO_MANY_IMAGES", &block(2)).await;
    is_refused("limits/pixels", &channel, images(&[[1, 1], [100, 51]]), "IMAGE_TOO_LARGE", &block(1)).await;
    let largest = images(&[[u32::MAX, u32::MAX]]);
    is_refused("limits/most-pixels", &channel, largest, "IMAGE_TOO_LARGE", &block(0)).await;
    let large = render(&channel, text(&"a".repeat(2000))).await;
    is_failed("limits/message-bytes", large, Code::ResourceExhausted, "MESSAGE_TOO_LARGE", None);
}

/// Returns the first bytes of a top-down bitmap: its height is negative (BITMAPFILEHEADER and
/// BITMAPINFOHEADER).
fn bitmap(width: i32, height: i32) -> Vec<u8> {
    let mut bytes = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    bytes.extend(width.to_le_bytes().into_iter().chain((-height).to_le_bytes()).chain([1, 0, 24, 0]));
    bytes.resize(54, 0);
    bytes
}

#[test]
fn image_size_is_checked_in_every_encoding() {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}");
    let wide = STANDARD.encode(png(1 << 20, 1 << 20));
    let spaced = wide.chars().map(|letter| format!("{letter} \n")).collect::<String>();
    let blocks = [
        json!({"type": "image", "base64": wide}),
        json!({"type": "image", "base64": spaced}),
        json!({"type": "image", "url": format!("data:image/png;base64,{wide}")}),
        json!({"type": "image_url", "image_url": {"url": format!("DATA:image/png;BASE64,{spaced}")}}),
        json!({"type": "input_image", "image_url": format!("data:image/png;base64,{wide}")}),
        json!({"type": "image_url", "image_url": {"data": wide}}),
        json!({"type": "image", "path": format!("data:image/png;base64,{wide}")}),
        json!({"type": "image", "url": "x", "image_url": format!("data:image/png;base64,{wide}")}),
        json!({"type": "image", "input_audio": "x", "image": format!("data:;base64,{wide}")}),
        json!({"type": "image", "base64": STANDARD.encode(bitmap(1 << 20, 1 << 20))}),
    ];
    let request = |block: &Value| {
        let messages = json!([{"role": "user", "content": [block]}]);
        json!({"model": model.path(), "messages": messages}).to_string() + "\n"
    };
    let mut command = Command::new(binary("render-svc"));
    let command = command.args(["render", "--jsonl"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
    let requests: String = blocks.iter().map(request).collect();
    child.stdin.take().expect("piped").write_all(requests.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends").stdout;
    let answers: Vec<Value> =
        output.split_inclusive(|&byte| byte == b'\n').map(|line| serde_json::from_slice(line).expect("JSON")).collect();
    assert_eq!(answers.len(), blocks.len());
    for (answer, block) in answers.iter().zip(&blocks) {
        assert_eq!(answer["error"]["reason"], "IMAGE_TOO_LARGE", "{block}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_over_max_prompt_tokens_is_rejected() {
    let config =
        Config { threads: 1, dtype: DtypeChoice::F32, max_prompt_tokens: Some(8), ..Config::new(default_model()) };
    let service = Generation::start_with(config).await;
    let mut client = GenerateServiceClient::new(service.running.channel().await);
    let mut generate = async |tokens: usize, resumed: u32| {
        let request = GenerateRequest {
            input: Some(Input::TokenIds(TokenIds { ids: vec![5; tokens] })),
            resume: (resumed > 0).then_some(Resume { generated_tokens: resumed, ..Resume::default() }),
            stop: Some(Stop { max_new_tokens: Some(resumed + 1), ..Stop::default() }),
            ..GenerateRequest::default()
        };
        client.generate(request).await.map(drop)
    };
    generate(8, 0).await.expect("an answer");
    generate(12, 4).await.expect("generated tokens are not prompt");
    let long = generate(9, 0).await;
    is_failed("limits/prompt-tokens", long, Code::InvalidArgument, "PROMPT_OVER_LIMIT", Some("token_ids.ids"));
}
