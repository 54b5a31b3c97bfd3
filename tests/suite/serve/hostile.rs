//! Hostile callers: the service's memory stays bounded, and other callers get their answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{GenerateRequest, Stop, TokenIds};
use tandem_common::pb::render::v1::TokenizeRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_tests::{ModelFolder, Process, default_model};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::codegen::Bytes;
use tonic::transport::Endpoint;

const METHOD: &str = "/tandem.render.v1.RenderService/Tokenize";
/// An upper bound for memory in bytes. It is more than the service needs with the maximum number of
/// running calls.
const MEMORY: u64 = 192 << 20;

/// A service in a separate process, and an honest caller that sends requests during the whole
/// attack.
struct AttackedService {
    process: Process,
    address: SocketAddr,
    over: Arc<AtomicBool>,
    honest: JoinHandle<usize>,
}

impl AttackedService {
    async fn start() -> Self {
        let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").with_tokenizer();
        let path = model.path().display().to_string();
        let start = move || Process::start("127.0.0.1:0", &["render-svc", "--models", &path]);
        let process = tokio::task::spawn_blocking(start).await.expect("it starts");
        let address = process.address.parse().expect("an address");
        let over = Arc::new(AtomicBool::new(false));
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel = endpoint.connect().await.expect("it answers");
        let until = Arc::clone(&over);
        let honest = tokio::spawn(async move {
            let (mut client, mut answers) = (RenderServiceClient::new(channel), 0);
            // At least one call begins after the attack, even if the attack is short.
            loop {
                let is_last = until.load(Ordering::Relaxed);
                let request = TokenizeRequest { text: "aaaa".to_owned(), ..TokenizeRequest::default() };
                client.tokenize(request).await.expect("other callers are served");
                answers += 1;
                if is_last {
                    return answers;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        Self { process, address, over, honest }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    async fn assert_unaffected(mut self) {
        let resident = self.process.resident();
        self.over.store(true, Ordering::Relaxed);
        let answers = self.honest.await.expect("other callers are served");
        assert!(answers > 0);
        assert!(resident < MEMORY, "{} MiB", resident >> 20);
        let code = tokio::task::spawn_blocking(move || self.process.terminate()).await.expect("it ends");
        assert_eq!(code, Some(0));
    }
}

fn request(address: SocketAddr) -> http::request::Builder {
    http::Request::post(format!("http://{address}{METHOD}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

/// Reads until the service closes the connection, or until a timeout.
async fn read_until_closed(stream: &mut TcpStream) {
    let mut bytes = [0; 4096];
    let read = async { while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {} };
    let _ = tokio::time::timeout(Duration::from_secs(2), read).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_tolerates_immediately_reset_calls() {
    let attacked = AttackedService::start().await;
    for _ in 0..4 {
        let (mut sender, connection) = h2::client::handshake(attacked.connect().await).await.expect("HTTP/2");
        let connection = tokio::spawn(connection);
        for _ in 0..5_000 {
            let Ok(ready) = sender.ready().await else { break };
            sender = ready;
            let request = request(attacked.address).body(()).expect("a request");
            let Ok((_, mut body)) = sender.send_request(request, false) else { break };
            body.send_reset(h2::Reason::CANCEL);
        }
        connection.abort();
    }
    attacked.assert_unaffected().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_tolerates_ten_thousand_calls_without_a_message() {
    let attacked = AttackedService::start().await;
    let (mut sender, connection) = h2::client::handshake(attacked.connect().await).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let mut answers = Vec::new();
    for _ in 0..10_000 {
        sender = sender.ready().await.expect("ready");
        let request = request(attacked.address).body(()).expect("a request");
        let (answer, _) = sender.send_request(request, true).expect("it is sent");
        answers.push(tokio::spawn(answer));
    }
    let mut failures = 0;
    for answer in answers {
        match answer.await.expect("no panic") {
            Ok(answer) => {
                assert!(answer.headers().contains_key("grpc-status"), "an error at once");
                failures += 1;
            }
            // The client opened more streams than a connection may have before it received the
            // service's settings.
            Err(error) => assert_eq!(error.reason(), Some(h2::Reason::REFUSED_STREAM), "{error}"),
        }
    }
    assert!(failures >= 256, "{failures}");
    connection.abort();
    attacked.assert_unaffected().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_tolerates_bytes_that_are_not_http2_frames() {
    let attacked = AttackedService::start().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut noise = 7_u32;
    for case in 0..200 {
        let mut stream = attacked.connect().await;
        let mut bytes = if case % 2 == 0 { preface.to_vec() } else { Vec::new() };
        bytes.extend((0..64 + case * 16).map(|_| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        }));
        // The service may close the connection before all bytes are written.
        let _ = stream.write_all(&bytes).await;
        if case % 50 == 0 {
            read_until_closed(&mut stream).await;
        }
    }
    attacked.assert_unaffected().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_tolerates_oversized_headers() {
    let attacked = AttackedService::start().await;
    for size in [20 << 10, 1 << 20] {
        let (mut sender, connection) = h2::client::handshake(attacked.connect().await).await.expect("HTTP/2");
        let connection = tokio::spawn(connection);
        let request = request(attacked.address).header("x-large", "a".repeat(size)).body(()).expect("a request");
        if let Ok((answer, _)) = sender.send_request(request, true) {
            // The call is rejected, or the connection is closed.
            if let Ok(answer) = answer.await {
                let code = answer.headers().get("grpc-status").and_then(|code| code.to_str().ok());
                assert!(answer.status() != http::StatusCode::OK || code == Some("8"), "{size} bytes: {answer:?}");
            }
        }
        connection.abort();
    }
    attacked.assert_unaffected().await;
}

/// Returns true if a new connection gets an answer.
async fn is_answered(attacked: &AttackedService) -> bool {
    let Ok((mut sender, connection)) = h2::client::handshake(attacked.connect().await).await else { return false };
    let connection = tokio::spawn(connection);
    let request = request(attacked.address).body(()).expect("a request");
    let answer = match sender.send_request(request, true) {
        Ok((answer, _)) => answer.await.is_ok(),
        Err(_) => false,
    };
    connection.abort();
    answer
}

/// Returns a message as gRPC sends it (gRPC over HTTP/2, Length-Prefixed-Message).
fn framed(message: &impl prost::Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let length = u32::try_from(bytes.len()).expect("a small message");
    [&[0], &length.to_be_bytes()[..], &bytes].concat()
}

fn story(tokens: u32) -> GenerateRequest {
    GenerateRequest {
        input: Some(Input::TokenIds(TokenIds { ids: (1..33).collect() })),
        stop: Some(Stop { max_new_tokens: Some(tokens), ignore_eos: true, ..Stop::default() }),
        ..GenerateRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_block_no_other_caller() {
    let model = default_model().display().to_string();
    let command = ["gen-svc", "--model", &model, "--threads", "1", "--kv-memory-mib", "64", "--max-running", "4"];
    let mut process = Process::start("127.0.0.1:0", &command);
    let address: SocketAddr = process.address.parse().expect("an address");
    let mut readers = Vec::new();
    for _ in 0..32 {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let built = h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(stream).await;
        let (mut sender, connection) = built.expect("HTTP/2");
        readers.push(tokio::spawn(connection));
        let uri = format!("http://{address}/tandem.generate.v1.GenerateService/Generate");
        let request = http::Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        let (answer, mut body) = sender.send_request(request.body(()).expect("a request"), false).expect("it is sent");
        body.send_data(framed(&story(4000)).into(), true).expect("it is sent");
        // The answer's headers arrive, and the client never reads the data after them.
        readers.push(tokio::spawn(async move {
            let _answer = answer.await;
            let _sender = sender;
            std::future::pending().await
        }));
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let mut client = GenerateServiceClient::new(endpoint.connect().await.expect("it answers"));
    let before = process.resident();
    for _ in 0..8 {
        let mut answer = client.generate(story(8)).await.expect("other callers are served").into_inner();
        let mut has_ended = false;
        while let Some(response) = answer.message().await.expect("other callers are served") {
            has_ended |= matches!(response.event, Some(Event::Summary(_)));
        }
        assert!(has_ended);
    }
    assert!(process.resident() < before + MEMORY, "{} MiB more", (process.resident() - before) >> 20);
    readers.iter().for_each(JoinHandle::abort);
    drop(client);
    let code = tokio::task::spawn_blocking(move || process.terminate()).await.expect("it ends");
    assert_eq!(code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn service_tolerates_five_hundred_abandoned_connections() {
    let attacked = AttackedService::start().await;
    let mut left = Vec::new();
    for _ in 0..500 {
        left.push(attacked.connect().await);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(left);
    let start = Instant::now();
    // The service accepts connections again.
    while !is_answered(&attacked).await {
        assert!(start.elapsed() < Duration::from_secs(20), "there is no room");
    }
    attacked.assert_unaffected().await;
}
