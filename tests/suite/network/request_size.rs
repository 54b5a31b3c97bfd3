//! The limits of a request's elements, of its JSON values, and of all messages in progress.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_all;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Request};
use prost::Message as _;
use tandem_common::pb::chat::v1::{ChatMessage, Conversation, Tool, ToolCall, tool};
use tandem_common::pb::generate::v1::Stop;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::serve::{SecurityArgs, ServeArgs};
use tandem_tests::failure::failed;
use tandem_tests::{ModelFolder, Running, error_texts, render_service_with_args};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tonic::codegen::Bytes;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const RENDER: &str = "tandem.render.v1.RenderService/Render";
const BATCH: &str = "tandem.render.v1.RenderService/BatchRender";
const CHECK: &str = "grpc.health.v1.Health/Check";
const RUN_TASK: &str = "tandem.task.v1.TaskService/RunTask";
const REFLECTION: [&str; 2] = [
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
const MAX_ELEMENTS: usize = 65_536;
const MAX_JSON_VALUES: usize = 131_072;
/// The limit of a connection's health checks whose message is incomplete.
const MAX_CHECKS: usize = 32;
/// The bytes of a message that do not count towards the limit of all messages.
const UNCOUNTED_BYTES: usize = 64 << 10;
const TOKENS: &str = "first-secret name=first\nsecond-secret name=second\n";

async fn connect(service: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(service).await.expect("it listens");
    let (sender, connection) = h2::client::handshake(stream).await.expect("a connection");
    tokio::spawn(connection);
    sender
}

/// A service, and one connection to it.
struct Service {
    running: Running,
    _files: (TempDir, ModelFolder),
    sender: SendRequest<Bytes>,
}

/// A call whose message may be unfinished.
struct Call {
    response: ResponseFuture,
    body: h2::SendStream<Bytes>,
}

/// Starts a call without a message.
async fn begin(sender: &SendRequest<Bytes>, method: &str, caller: &str) -> Call {
    let request = Request::post(format!("http://localhost/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {caller}-secret"));
    let mut sender = sender.clone().ready().await.expect("the connection is open");
    let (response, body) = sender.send_request(request.body(()).expect("a request"), false).expect("it is sent");
    Call { response, body }
}

impl Service {
    async fn start(args: ServeArgs) -> Self {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("tokens");
        std::fs::write(&file, TOKENS).expect("a file");
        let security = SecurityArgs { token_file: Some(file), ..SecurityArgs::default() };
        let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").with_tokenizer();
        let service = render_service_with_args(&[model.path()], ServeArgs { security, ..args }).await;
        let sender = connect(service.address).await;
        Self { running: service, _files: (folder, model), sender }
    }

    /// Starts a call without a message.
    async fn begin(&self, method: &str, caller: &str) -> Call {
        begin(&self.sender, method, caller).await
    }

    /// Sends a request in chunks of at most `chunk` bytes, and returns the error.
    async fn refusal(&self, method: &str, message: &[u8], chunk: usize) -> Option<Status> {
        let mut call = self.begin(method, "first").await;
        call.send(&framed(message, message.len()), chunk).await;
        let _ = call.body.send_data(Bytes::new(), true);
        call.refusal().await
    }
}

impl Call {
    /// Sends bytes of the body. They may be left unread by a service that has refused the call.
    async fn send(&mut self, bytes: &[u8], chunk: usize) {
        for chunk in bytes.chunks(chunk) {
            self.body.reserve_capacity(chunk.len());
            while self.body.capacity() < chunk.len() {
                if !matches!(std::future::poll_fn(|context| self.body.poll_capacity(context)).await, Some(Ok(_))) {
                    return;
                }
            }
            if self.body.send_data(Bytes::copy_from_slice(chunk), false).is_err() {
                return;
            }
        }
    }

    /// Waits for the end of the response.
    async fn refusal(self) -> Option<Status> {
        let mut response = self.response.await.expect("a response");
        let status = |headers: &HeaderMap| Status::from_header_map(headers).filter(|status| status.code() != Code::Ok);
        if let Some(status) = status(response.headers()) {
            return Some(status);
        }
        while let Some(data) = response.body_mut().data().await {
            let bytes = data.expect("data").len();
            let _ = response.body_mut().flow_control().release_capacity(bytes);
        }
        response.body_mut().trailers().await.expect("an end").as_ref().and_then(status)
    }
}

/// Returns the start of a gRPC message that announces `length` bytes.
fn framed(message: &[u8], length: usize) -> Vec<u8> {
    let length = u32::try_from(length).expect("a small message").to_be_bytes();
    [&[0], &length[..], message].concat()
}

fn request(conversation: Conversation) -> pb::RenderRequest {
    pb::RenderRequest { conversation: Some(conversation), ..Default::default() }
}

fn messages(count: usize) -> pb::RenderRequest {
    request(Conversation { messages: vec![ChatMessage::default(); count], ..Default::default() })
}

/// A request with tools whose JSON texts have `counts` values.
fn json_values(counts: &[usize]) -> pb::RenderRequest {
    // The list and its members but the first. Text in a string is not counted.
    let list = |count: &usize| {
        format!(r#"["\",[{{, a text that is longer than a word ,[{{,, \\",{}0]"#, "0,".repeat(count - 2))
    };
    let tool = |count| Tool { kind: Some(tool::Kind::ToolJson(list(count))) };
    request(Conversation { tools: counts.iter().map(tool).collect(), ..Default::default() })
}

/// Returns the reason, the field and the message of a refusal.
fn too_large(status: Option<Status>) -> Option<(String, String)> {
    let status = status?;
    let failed = failed(&status);
    (failed.reason == "MESSAGE_TOO_LARGE").then(|| (failed.field.unwrap_or_default(), status.message().to_owned()))
}

fn field(status: Option<Status>) -> Option<String> {
    too_large(status).map(|(field, _)| field)
}

#[tokio::test(flavor = "multi_thread")]
async fn elements_of_a_request_are_limited() {
    let service = Service::start(ServeArgs::default()).await;
    // The conversation is an element too.
    let most = messages(MAX_ELEMENTS - 1).encode_to_vec();
    assert_eq!(too_large(service.refusal(RENDER, &most, 16 << 10).await), None);
    let more = messages(MAX_ELEMENTS).encode_to_vec();
    for chunk in [1 << 14, 4_999] {
        let (field, message) = too_large(service.refusal(RENDER, &more, chunk).await).expect("a refusal");
        assert_eq!(field, "conversation.messages");
        error_texts::check("network/elements", message);
    }
    let batch = pb::BatchRenderRequest { requests: vec![pb::RenderRequest::default(); MAX_ELEMENTS + 1] };
    let found = service.refusal(BATCH, &batch.encode_to_vec(), 1 << 14).await;
    assert_eq!(field(found).as_deref(), Some("requests"));
    let calls = ChatMessage { tool_calls: vec![ToolCall::default(); MAX_ELEMENTS], ..Default::default() };
    let calls = request(Conversation { messages: vec![calls], ..Default::default() });
    let found = service.refusal(RENDER, &calls.encode_to_vec(), 1 << 14).await;
    assert_eq!(field(found).as_deref(), Some("conversation.messages.tool_calls"));
    let stop = Stop { stop_strings: vec![String::new(); MAX_ELEMENTS], ..Default::default() };
    let task = RunTaskRequest { stop: Some(stop), ..Default::default() };
    let found = service.refusal(RUN_TASK, &task.encode_to_vec(), 1 << 14).await;
    assert_eq!(field(found).as_deref(), Some("stop.stop_strings"));
    let capabilities = Some(pb::CapabilityOverride { capabilities: vec![0; MAX_ELEMENTS] });
    let options = Some(pb::RenderOptions { capabilities, ..Default::default() });
    let options = pb::RenderRequest { options, ..Default::default() };
    let found = service.refusal(RENDER, &options.encode_to_vec(), 4_999).await;
    assert_eq!(field(found).as_deref(), Some("options.capabilities.capabilities"));
}

#[tokio::test(flavor = "multi_thread")]
async fn elements_are_counted_behind_unknown_fields() {
    let service = Service::start(ServeArgs::default()).await;
    // Field 100 as a number, eight bytes, bytes, a group with a field in it, and four bytes.
    let unknown: &[&[u8]] = &[
        &[0xa0, 0x06, 0xff, 0x01],
        &[0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0xa2, 0x06, 3, 0x12, 0x00, 0x12],
        &[0xa3, 0x06, 0x12, 0x00, 0xa4, 0x06],
        &[0xa5, 0x06, 1, 2, 3, 4],
    ];
    let unknown = unknown.concat();
    let small = [&unknown[..], &messages(3).encode_to_vec(), &unknown].concat();
    for chunk in 1..12 {
        assert_eq!(too_large(service.refusal(RENDER, &small, chunk).await), None);
    }
    let large = [unknown, messages(MAX_ELEMENTS).encode_to_vec()].concat();
    let found = service.refusal(RENDER, &large, 4_999).await;
    assert_eq!(field(found).as_deref(), Some("conversation.messages"));
}

#[tokio::test(flavor = "multi_thread")]
async fn json_values_of_a_conversation_are_limited() {
    let service = Service::start(ServeArgs::default()).await;
    let render =
        async |request: pb::RenderRequest| too_large(service.refusal(RENDER, &request.encode_to_vec(), 4_999).await);
    let half = MAX_JSON_VALUES / 2;
    assert_eq!(render(json_values(&[half, half])).await, None);
    let (field, message) = render(json_values(&[half, half + 1])).await.expect("a refusal");
    assert_eq!(field, "conversation.tools.tool_json");
    error_texts::check("network/json-values", message);
    // The decoder joins repeated occurrences of a conversation.
    let parts = [json_values(&[half]), json_values(&[half]), json_values(&[half])];
    let parts = parts.map(|part| part.encode_to_vec()).concat();
    let (field, _) = too_large(service.refusal(RENDER, &parts, 4_999).await).expect("a refusal");
    assert_eq!(field, "conversation.tools.tool_json");
    let service = Service::start(ServeArgs { max_message_bytes: 1 << 28, ..ServeArgs::default() }).await;
    let batch = pb::BatchRenderRequest { requests: vec![json_values(&[half, half]); 3] };
    let refusal = service.refusal(BATCH, &batch.encode_to_vec(), 1 << 14).await;
    assert!(refusal.is_none(), "{refusal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_values_count_towards_the_limit_of_all_messages() {
    const LIMIT: usize = 8 << 20;
    let args = ServeArgs { max_message_bytes: LIMIT / 4, ..ServeArgs::default() };
    let service = Service::start(args).await;
    let batch = |requests| pb::BatchRenderRequest { requests: vec![json_values(&[10_000]); requests] }.encode_to_vec();
    let (few, many) = (batch(1), batch(12));
    assert!(many.len() < LIMIT / 16, "its bytes alone are few");
    let refusal = service.refusal(BATCH, &few, 4_999).await;
    assert!(refusal.is_none(), "{refusal:?}");
    let refusal = service.refusal(BATCH, &many, 4_999).await.expect("a refusal");
    assert_eq!(failed(&refusal).reason, "TOTAL_MESSAGE_BYTES");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_to_reflection_has_a_low_limit() {
    let service = Service::start(ServeArgs::default()).await;
    // A list of the services for a host of this length.
    let message = |host: usize| {
        let [high, low] = [host >> 7, host & 0x7f | 0x80].map(|bits| bits as u8);
        [vec![0x0a, low, high], vec![b'a'; host], vec![0x3a, 0]].concat()
    };
    let (largest, larger) = (message(4096 - 5), message(4096 - 4));
    for method in REFLECTION {
        let refusal = service.refusal(method, &largest, 999).await;
        assert!(refusal.is_none(), "{refusal:?}");
        let (_, message) = too_large(service.refusal(method, &larger, 999).await).expect("a refusal");
        error_texts::check("network/reflection-message", message);
        let mut call = service.begin(method, "first").await;
        for message in [&largest, &larger] {
            call.send(&framed(message, message.len()), 999).await;
        }
        assert_eq!(field(call.refusal().await).as_deref(), Some(""), "the second message");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_message_is_malformed() {
    let service = Service::start(ServeArgs::default()).await;
    let message = framed(&[], 0);
    for rest in [&message[..], &message[..1]] {
        let mut call = service.begin(RENDER, "first").await;
        call.send(&[&message, rest].concat(), 999).await;
        let _ = call.body.send_data(Bytes::new(), true);
        let status = call.refusal().await.expect("a refusal");
        assert_eq!((status.code(), failed(&status).reason.as_str()), (Code::InvalidArgument, "MALFORMED_MESSAGE"));
        error_texts::check("network/second-message", status.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_has_typed_errors() {
    let service = Service::start(ServeArgs::default()).await;
    // A symbol and a file that do not exist, an extension, and no question.
    let cases: [(&[u8], &str, Code); 4] = [
        (b"\x22\x01a", "UNKNOWN_NAME", Code::NotFound),
        (b"\x1a\x01a", "UNKNOWN_NAME", Code::NotFound),
        (b"\x2a\x04\x0a\x01a\x10", "MALFORMED_MESSAGE", Code::InvalidArgument),
        (b"\x0a\x01a", "INVALID_REQUEST", Code::InvalidArgument),
    ];
    for method in REFLECTION {
        for (message, reason, code) in cases {
            let status = service.refusal(method, message, 999).await.expect("a refusal");
            assert_eq!((failed(&status).reason.as_str(), status.code()), (reason, code), "{message:?}");
        }
        let mut cut = service.begin(method, "first").await;
        cut.send(&framed(b"\x22\x01a", 3)[..6], 999).await;
        let _ = cut.body.send_data(Bytes::new(), true);
        assert_eq!(failed(&cut.refusal().await.expect("a refusal")).reason, "MALFORMED_MESSAGE");
        let mut empty = service.begin(method, "first").await;
        let _ = empty.body.send_data(Bytes::new(), true);
        assert!(empty.refusal().await.is_none(), "a stream without requests");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_health_checks_are_limited() {
    let service = Service::start(ServeArgs::default()).await;
    let mut calls = Vec::new();
    for _ in 0..=MAX_CHECKS {
        calls.push(service.begin(CHECK, "first").await.refusal());
    }
    let mut other = HealthClient::new(service.running.channel().await);
    other.check(HealthCheckRequest::default()).await.expect("another connection is checked");
    let refusals = futures_util::future::join_all(calls).await;
    let count = |reason: &str| refusals.iter().flatten().filter(|status| failed(status).reason == reason).count();
    assert_eq!((count("OVERLOADED"), count("REQUEST_TOO_SLOW")), (1, MAX_CHECKS));
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_health_checks_do_not_hinder_other_connections_of_their_address() {
    let service = Service::start(ServeArgs::default()).await;
    let mut calls = Vec::new();
    // As behind a proxy, whose clients have one address.
    for _ in 0..40 {
        let sender = connect(service.running.address).await;
        let mut checks = Vec::new();
        for _ in 0..=MAX_CHECKS {
            checks.push(begin(&sender, CHECK, "first").await.refusal().boxed());
        }
        // Once one is refused, the others have the connection's permits.
        let (refused, _, others) = select_all(checks).await;
        assert!(refused.is_some());
        calls.extend(others);
    }
    let mut other = HealthClient::new(service.running.channel().await);
    other.check(HealthCheckRequest::default()).await.expect("another connection is checked");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_message_is_left_to_the_decoder() {
    let service = Service::start(ServeArgs::default()).await;
    let cases: [&[u8]; 6] =
        [&[0x0f], &[0xff; 11], &[0x12, 0xff], &[0x12, 0x05, 0x0a], &[0xa4, 0x06], &[0x12, 0x03, 0x0a, 0x09, 0x00]];
    for message in cases {
        let status = service.refusal(RENDER, message, 1).await.expect("a refusal");
        assert_eq!(failed(&status).reason, "MALFORMED_MESSAGE", "{message:x?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_in_progress_are_limited_together_and_by_caller() {
    const LIMIT: usize = 1 << 20;
    let args = ServeArgs { max_message_bytes: LIMIT / 4, ..ServeArgs::default() };
    let service = Service::start(args).await;
    // One byte is missing, so that the call waits.
    let part = |counted: usize| framed(&vec![0; counted + UNCOUNTED_BYTES], counted + UNCOUNTED_BYTES + 1);
    let hold = async |caller: &'static str, counted: usize| {
        let mut call = service.begin(RENDER, caller).await;
        call.send(&part(counted), 1 << 14).await;
        call
    };
    // The reason and the message of a complete call with one counted byte.
    let probe = async |caller: &'static str| {
        let mut call = hold(caller, 1).await;
        let _ = call.body.send_data(Bytes::from_static(&[0]), true);
        let status = call.refusal().await.expect("it is invalid");
        (failed(&status).reason, status.message().to_owned())
    };
    // Calls that use up the limit, and the refusal of the next. The service may read the next first,
    // which then gets the place of one of them.
    let fill = async |caller: &'static str, parts: &[usize]| {
        for pause in 0..12 {
            let mut calls = Vec::new();
            for counted in parts {
                calls.push(hold(caller, *counted).await);
            }
            tokio::time::sleep(Duration::from_millis(1 << pause)).await;
            let (reason, message) = probe(caller).await;
            if reason == "TOTAL_MESSAGE_BYTES" {
                return (calls, message);
            }
        }
        panic!("no call is refused");
    };
    let (greedy, message) = fill("first", &[LIMIT / 8; 6]).await;
    error_texts::check("network/total-bytes-of-caller", message);
    let (polite, message) = fill("second", &[LIMIT / 8; 2]).await;
    error_texts::check("network/total-bytes", message);
    let small = service.refusal(RENDER, &messages(1).encode_to_vec(), 1 << 14).await.expect("it has no role");
    assert_eq!(failed(&small).reason, "INVALID_REQUEST", "a small message is not counted");
    drop((greedy, polite));
    // The service learns of the cancelled calls a little later.
    while probe("first").await.0 == "TOTAL_MESSAGE_BYTES" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
