//! Requests other than plain gRPC over HTTP/2: gRPC-Web, origins of pages, foreign formats, broken
//! requests, and the metadata of every response.

use std::fs::File;
use std::net::SocketAddr;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Parser as _;
use prost::Message as _;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::render::v1::{TokenizeRequest, TokenizeResponse};
use tandem_common::serve::ServeArgs;
use tandem_tests::failure::failed;
use tandem_tests::{ModelFolder, Process, Running, error_texts, render_service_with_args};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const TOKENIZE: &str = "/tandem.render.v1.RenderService/Tokenize";
const GRPC_WEB: &str = "content-type: application/grpc-web+proto\r\n";
/// An origin that the service under test allows.
const ORIGIN: &str = "https://chat.example.com";

/// A program with the arguments of serving.
#[derive(Debug, clap::Parser)]
struct Arguments {
    #[command(flatten)]
    serve: ServeArgs,
}

async fn serve() -> Running {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").with_tokenizer();
    let allowed_origins = vec![ORIGIN.parse().expect("a header value")];
    render_service_with_args(&[model.path()], ServeArgs { allowed_origins, ..ServeArgs::default() }).await
}

/// A response over HTTP/1.1: its status line and headers in lower case, and its body.
struct Response {
    head: String,
    body: Vec<u8>,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Returns the frames of a gRPC-Web response with their flags.
    fn frames(&self) -> Vec<(u8, &[u8])> {
        let (mut rest, mut frames) = (self.body.as_slice(), Vec::new());
        while let Some((head, tail)) = rest.split_at_checked(5) {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            frames.push((head[0], &tail[..length]));
            rest = &tail[length..];
        }
        frames
    }
}

/// Sends a request over HTTP/1.1, without a library between the test and the wire.
async fn send(service: &Running, method: &str, path: &str, headers: &str, body: &[u8]) -> Response {
    send_to(service.address, method, path, headers, body).await
}

async fn send_to(address: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Response {
    let mut stream = TcpStream::connect(address).await.expect("it connects");
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.expect("sent");
    response(stream).await
}

/// Reads a response, to the end of the connection.
async fn response(mut stream: TcpStream) -> Response {
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.expect("received");
    let end = received.windows(4).position(|window| window == b"\r\n\r\n").expect("the end of the headers");
    let head = String::from_utf8(received[..end].to_vec()).expect("UTF-8").to_lowercase();
    let mut body = received[end + 4..].to_vec();
    if head.contains("transfer-encoding: chunked") {
        body = joined(&body);
    }
    Response { head, body }
}

/// Reads one response of a connection that stays open. Returns its status line.
async fn next_status(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    loop {
        assert_ne!(stream.read_buf(&mut received).await.expect("received"), 0, "the connection stays open");
        let text = String::from_utf8_lossy(&received).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if length.map_or(body.ends_with("0\r\n\r\n"), |length| body.len() >= length) {
            return head.lines().next().unwrap_or_default().to_owned();
        }
    }
}

/// Joins the chunks of a body with `transfer-encoding: chunked`.
fn joined(mut chunked: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunked.windows(2).position(|window| window == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&chunked[..end]).expect("UTF-8"), 16).expect("a length");
        body.extend(&chunked[end + 2..end + 2 + length]);
        chunked = &chunked[end + 2 + length + 2..];
    }
    body
}

/// Returns a request message as one gRPC frame.
fn frame(text: &str) -> Vec<u8> {
    let message = TokenizeRequest { text: text.to_owned(), ..TokenizeRequest::default() }.encode_to_vec();
    [&[0], (message.len() as u32).to_be_bytes().as_slice(), &message].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_web_over_http1_returns_message_and_trailers() {
    let service = serve().await;
    let response = send(&service, "POST", TOKENIZE, GRPC_WEB, &frame("ab")).await;
    assert!(response.head.starts_with("http/1.1 200"), "{}", response.head);
    assert_eq!(response.header("content-type"), Some("application/grpc-web+proto"));
    let [(0, message), (0x80, trailers)] = response.frames()[..] else { panic!("{:?}", response.frames()) };
    let answer = TokenizeResponse::decode(message).expect("a message");
    let mut client = RenderServiceClient::new(service.channel().await);
    let request = TokenizeRequest { text: "ab".to_owned(), ..TokenizeRequest::default() };
    assert_eq!(answer, client.tokenize(request).await.expect("an answer").into_inner());
    assert!(std::str::from_utf8(trailers).expect("UTF-8").contains("grpc-status:0"), "{trailers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_web_errors_have_their_details() {
    let service = serve().await;
    let response = send(&service, "POST", "/tandem.render.v1.RenderService/None", GRPC_WEB, &frame("a")).await;
    let trailers = response.frames().iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect();
    let status = [response.head.clone(), trailers].concat();
    assert!(status.contains("grpc-status: 12") || status.contains("grpc-status:12"), "{status}");
    assert!(status.contains("grpc-status-details-bin"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_pages_of_allowed_origins_may_call() {
    let service = serve().await;
    let preflight = |origin: &str| {
        format!(
            "origin: {origin}\r\naccess-control-request-method: POST\r\naccess-control-request-headers: x-grpc-web\r\n"
        )
    };
    let allowed = send(&service, "OPTIONS", TOKENIZE, &preflight(ORIGIN), b"").await;
    assert_eq!(allowed.header("access-control-allow-origin"), Some(ORIGIN), "{}", allowed.head);
    assert!(allowed.header("access-control-allow-headers").is_some_and(|names| names.contains("x-grpc-web")));
    let other = send(&service, "OPTIONS", TOKENIZE, &preflight("https://other.example.com"), b"").await;
    assert_eq!(other.header("access-control-allow-origin"), None, "{}", other.head);
    let called = send(&service, "POST", TOKENIZE, &format!("origin: {ORIGIN}\r\n{GRPC_WEB}"), &frame("a")).await;
    assert_eq!(called.header("access-control-allow-origin"), Some(ORIGIN), "{}", called.head);
    assert!(
        called.header("access-control-expose-headers").is_some_and(|names| names.contains("grpc-status-details-bin"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_other_pages_are_refused() {
    let service = serve().await;
    for origin in ["https://other.example.com", "http://chat.example.com", "null", ""] {
        let headers = format!("origin: {origin}\r\n{GRPC_WEB}");
        let response = send(&service, "POST", TOKENIZE, &headers, &frame("a")).await;
        assert!(response.head.starts_with("http/1.1 403"), "{origin}: {}", response.head);
        assert_eq!(response.header("access-control-allow-origin"), None, "{origin}: {}", response.head);
        error_texts::check("network/origin", String::from_utf8_lossy(&response.body));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_other_pages_are_logged_once_in_ten_seconds() {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}");
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("log");
    let log = Stdio::from(File::create(&path).expect("a file"));
    let models = model.path().display().to_string();
    let service = Process::start_in("127.0.0.1:0", &["render-svc", "--models", &models], &[], log);
    let address = service.address.parse().expect("an address");
    let long = "x".repeat(1000);
    for origin in [&format!("http://a\t{long}"), "https://other.example.com"] {
        let headers = format!("origin: {origin}\r\n{GRPC_WEB}");
        let response = send_to(address, "POST", TOKENIZE, &headers, &frame("a")).await;
        assert!(response.head.starts_with("http/1.1 403"), "{origin}: {}", response.head);
    }
    let log = std::fs::read_to_string(path).expect("a log");
    let [line] = log.lines().filter(|line| line.contains("foreign origin")).collect::<Vec<_>>()[..] else {
        panic!("{log}");
    };
    assert!(line.contains("WARN") && line.contains("--allowed-origin"), "{line}");
    assert!(line.contains(r"http://a\\txxx") && !line.contains(&long), "{line}");
}

#[test]
fn allowed_origin_is_read_as_browsers_write_it() {
    let read = |text: &str| {
        let args = Arguments::try_parse_from(["program", "--allowed-origin", text])?;
        Ok::<_, clap::Error>(args.serve.allowed_origins)
    };
    let valid = [
        ("https://chat.example.com", "https://chat.example.com"),
        ("HTTPS://Chat.Example.com:443", "https://chat.example.com"),
        ("http://localhost:80", "http://localhost"),
        ("https://localhost:80", "https://localhost:80"),
        ("http://[0:0::1]:8080", "http://[::1]:8080"),
        ("capacitor://localhost", "capacitor://localhost"),
        ("*", "*"),
    ];
    for (text, expected) in valid {
        assert_eq!(read(text).expect(text), [expected], "{text}");
    }
    let invalid = [
        "example.com",
        "https://",
        "://a",
        "https://a/",
        "https://a?b",
        "https://a#b",
        "https://user@a",
        "https://a:",
        "https://a:0",
        "https://a:+1",
        "https://a:65536",
        "https://*.a",
        "https://a b",
        " https://a",
        "https://\u{e4}",
        "https://[::1",
        "https://[::1]1",
        "null",
    ];
    for text in invalid {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains("expected SCHEME://HOST[:PORT]"), "{text}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_type_may_have_parameters_and_upper_case() {
    let service = serve().await;
    for format in ["application/grpc-web+proto; charset=utf-8", "Application/Grpc-Web", "application/grpc-web;a=b"] {
        let response = send(&service, "POST", TOKENIZE, &format!("content-type: {format}\r\n"), &frame("a")).await;
        assert!(response.head.starts_with("http/1.1 200"), "{format}: {}", response.head);
        assert_eq!(response.frames().len(), 2, "{format}: {}", response.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_over_http1_is_refused_with_a_text() {
    let service = serve().await;
    for format in ["application/grpc", "application/grpc+proto"] {
        let response = send(&service, "POST", TOKENIZE, &format!("content-type: {format}\r\n"), &frame("a")).await;
        assert!(response.head.starts_with("http/1.1 415"), "{format}: {}", response.head);
        assert!(response.header("x-request-id").is_some(), "{}", response.head);
        error_texts::check("network/http1", String::from_utf8_lossy(&response.body));
    }
}

/// Returns the gRPC code and the reason of a failed call.
fn failure(response: &Response) -> (i32, String) {
    let trailers: String = response.frames().iter().map(|(_, bytes)| String::from_utf8_lossy(bytes)).collect();
    let text = format!("{}\r\n{trailers}", response.head).replace(": ", ":");
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let code = value("grpc-status").and_then(|code| code.parse().ok());
    let message = value("grpc-message").unwrap_or_default();
    (code.unwrap_or_else(|| panic!("no status: {text}")), message.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_base64_is_a_malformed_message() {
    let service = serve().await;
    let whole = STANDARD.encode(frame("ab"));
    let newline = format!("{}\n{}", &whole[..8], &whole[8..]);
    let broken = ["!!!!!!!!", &whole[..whole.len() - 1], &newline, "AAA=AAAA", "AAB=", "=AAA"];
    for body in broken {
        let headers = "content-type: application/grpc-web-text\r\n";
        let response = send(&service, "POST", TOKENIZE, headers, body.as_bytes()).await;
        let (code, message) = failure(&response);
        assert_eq!(code, 3, "{body:?}: {message}: {}", response.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_ends_early_is_cancelled() {
    let service = serve().await;
    let bodies = ["transfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n", "content-length: 50\r\n\r\n\0\0"];
    for body in bodies {
        let mut stream = TcpStream::connect(service.address).await.expect("it connects");
        let head = format!("POST {TOKENIZE} HTTP/1.1\r\nhost: x\r\n{GRPC_WEB}{body}");
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.shutdown().await.expect("sent");
        let response = response(stream).await;
        let (code, message) = failure(&response);
        assert_eq!(code, 1, "{body:?}: {message}: {}", response.head);
        error_texts::check("network/aborted", message.replace("%20", " "));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_chunk_is_a_malformed_message() {
    let service = serve().await;
    for chunk in ["zz\r\n", "4\r\nabcdef\r\n", "fffffffffffffffff\r\n"] {
        let mut stream = TcpStream::connect(service.address).await.expect("it connects");
        let head =
            format!("POST {TOKENIZE} HTTP/1.1\r\nhost: x\r\n{GRPC_WEB}transfer-encoding: chunked\r\n\r\n{chunk}");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let response = response(stream).await;
        let (code, message) = failure(&response);
        assert_eq!(code, 3, "{chunk:?}: {message}: {}", response.head);
        error_texts::check("network/invalid-chunk", message.replace("%20", " "));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_request_is_an_unsupported_encoding() {
    let service = serve().await;
    for encoding in ["gzip", "foo"] {
        let headers = format!("{GRPC_WEB}grpc-encoding: {encoding}\r\n");
        let response = send(&service, "POST", TOKENIZE, &headers, &frame("a")).await;
        let (code, message) = failure(&response);
        assert_eq!((code, message.contains(encoding)), (12, true), "{message}: {}", response.head);
        assert_eq!(response.header("grpc-accept-encoding"), Some("identity"), "{}", response.head);
    }
    let channel = service.channel().await;
    let mut client = RenderServiceClient::new(channel).send_compressed(tonic::codec::CompressionEncoding::Gzip);
    let request = TokenizeRequest { text: "ab".to_owned(), ..TokenizeRequest::default() };
    let status = client.tokenize(request).await.expect_err("not supported");
    assert_eq!(failed(&status).reason, "UNSUPPORTED_ENCODING", "{status:?}");
    assert!(status.metadata().contains_key("grpc-accept-encoding"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_requests_get_an_http_error() {
    let service = serve().await;
    for format in ["application/json", "application/grpc+json", "application/connect+proto", "text/plain"] {
        let response = send(&service, "POST", TOKENIZE, &format!("content-type: {format}\r\n"), b"{}").await;
        assert!(response.head.starts_with("http/1.1 415"), "{format}: {}", response.head);
    }
    let response = send(&service, "POST", TOKENIZE, "", b"").await;
    assert!(response.head.starts_with("http/1.1 415"), "{}", response.head);
    let response = send(&service, "GET", "/", "", b"").await;
    assert!(response.head.starts_with("http/1.1 405"), "{}", response.head);
    assert_eq!(response.header("allow"), Some("post"));
}

/// RFC 9112 asks for 400 and the end of the connection: a proxy may see another end of the body.
#[tokio::test(flavor = "multi_thread")]
async fn request_with_an_unclear_end_or_host_is_refused() {
    let service = serve().await;
    let message = frame("a");
    let chunk = [format!("{:x}\r\n", message.len()).as_bytes(), &message, b"\r\n0\r\n\r\n"].concat();
    let once = "transfer-encoding: chunked\r\n";
    let cases = [
        ("host: x\r\n", once, "200 ok"),
        ("host: x\r\n", "Transfer-Encoding: Chunked\r\n", "200 ok"),
        ("host: x\r\n", "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", "400 bad request"),
        ("host: x\r\n", "transfer-encoding: chunked, chunked\r\n", "400 bad request"),
        ("host: x\r\n", "transfer-encoding: gzip, chunked\r\n", "400 bad request"),
        ("host: x\r\nhost: y\r\n", once, "400 bad request"),
        ("", once, "400 bad request"),
    ];
    for (hosts, encoding, status) in cases {
        let mut stream = TcpStream::connect(service.address).await.expect("it connects");
        let head = format!("POST {TOKENIZE} HTTP/1.1\r\n{hosts}{GRPC_WEB}{encoding}\r\n");
        stream.write_all(&[head.as_bytes(), &chunk].concat()).await.expect("sent");
        if status == "200 ok" {
            assert_eq!(next_status(&mut stream).await, format!("http/1.1 {status}"), "{hosts}{encoding}");
            continue;
        }
        let response = response(stream).await; // The connection ends.
        assert!(response.head.starts_with(&format!("http/1.1 {status}")), "{hosts}{encoding}: {}", response.head);
        assert_eq!(response.header("connection"), Some("close"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_above_the_limit_are_a_typed_error() {
    let service = serve().await;
    let mut client = RenderServiceClient::new(service.channel().await);
    for (bytes, is_accepted) in [(15_000, true), (17_000, false), (60_000, false)] {
        let mut request = tonic::Request::new(TokenizeRequest { text: "a".to_owned(), ..TokenizeRequest::default() });
        request.metadata_mut().insert("x-long", "a".repeat(bytes).parse().expect("a value"));
        let answer = client.tokenize(request).await;
        assert_eq!(answer.is_ok(), is_accepted, "{bytes}: {answer:?}");
        let Err(status) = answer else { continue };
        assert_eq!(failed(&status).reason, "MESSAGE_TOO_LARGE", "{bytes}");
    }
    let long = format!("{GRPC_WEB}x-long: {}\r\n", "a".repeat(17_000));
    let response = send(&service, "POST", TOKENIZE, &long, &frame("a")).await;
    assert!(response.head.starts_with("http/1.1 200"), "{}", response.head);
    assert_eq!(response.header("grpc-status"), Some("8"), "{}", response.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_frames_are_malformed_messages() {
    let service = serve().await;
    let whole = frame("ab");
    let broken = [&whole[..3], &whole[..whole.len() - 1], &[7, 0, 0, 0, 0], &[1, 0, 0, 0, 0], b""];
    for body in broken {
        let response = send(&service, "POST", TOKENIZE, GRPC_WEB, body).await;
        let frames = response.frames();
        let trailers = frames.last().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
        let status = response.header("grpc-status").map(str::to_owned).unwrap_or(trailers);
        assert!(status == "3" || status.contains("grpc-status:3"), "{body:?}: {} {status}", response.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_a_request_id() {
    let service = serve().await;
    let given = format!("{GRPC_WEB}x-request-id: order-17.b\r\n");
    let response = send(&service, "POST", TOKENIZE, &given, &frame("a")).await;
    assert_eq!(response.header("x-request-id"), Some("order-17.b"), "{}", response.head);
    let mut ids = Vec::new();
    for unusable in ["", "x-request-id: a b\r\n", "x-request-id: {\"a\":1}\r\n"] {
        let response = send(&service, "POST", TOKENIZE, &format!("{GRPC_WEB}{unusable}"), &frame("a")).await;
        ids.push(response.header("x-request-id").expect("an id").to_owned());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each call has its own id: {ids:?}");
    assert!(ids.iter().all(|id| id.len() == 32), "{ids:?}");
    let failed = send(&service, "POST", "/tandem.render.v1.RenderService/None", GRPC_WEB, &frame("a")).await;
    assert!(failed.header("x-request-id").is_some(), "{}", failed.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_survives_a_request_that_is_refused_before_its_body() {
    let service = serve().await;
    let body = vec![0; 200_000];
    let refused = [
        (TOKENIZE, "content-type: text/plain\r\n", "http/1.1 415 unsupported media type"),
        ("/tandem.render.v1.RenderService/Unknown", GRPC_WEB, "http/1.1 200 ok"),
    ];
    for (path, headers, status) in refused {
        let mut stream = TcpStream::connect(service.address).await.expect("it connects");
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
        stream.write_all(head.as_bytes()).await.expect("sent");
        assert_eq!(next_status(&mut stream).await, status, "{path}");
        stream.write_all(&body).await.expect("the body is still read");
        let valid = frame("a");
        let head = format!(
            "POST {TOKENIZE} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n{GRPC_WEB}\r\n",
            valid.len()
        );
        stream.write_all(&[head.as_bytes(), &valid].concat()).await.expect("sent");
        let answer = response(stream).await;
        assert!(answer.head.starts_with("http/1.1 200") && answer.frames().len() == 2, "{path}: {}", answer.head);
    }
}
