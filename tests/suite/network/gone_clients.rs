//! Clients that stop reading their connection, or are gone, where the protocol does not notice it.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use h2::Ping;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use prost::Message as _;
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_tests::conversations::{conversation, text};
use tandem_tests::{ModelFolder, Running, render_service_with_args};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, duplex, split};
use tokio::net::TcpStream;
use tonic::codegen::Bytes;

/// The calls of a client. One caller may have six at one time, of eight.
const CALLS: usize = 16;
/// The buffers of a socket hold few of these answers.
const ANSWER_BYTES: usize = 3_000_000;
/// The bytes that the client reads before it stops: settings and headers.
const READ_BYTES: u64 = 4096;

async fn start(args: ServeArgs) -> (ModelFolder, Running) {
    let model = ModelFolder::new("tiny").with_template(&format!("{{{{ 'x' * {ANSWER_BYTES} }}}}"));
    let service = render_service_with_args(&[model.path()], args).await;
    (model, service)
}

/// Opens a connection that reads no byte after the first ones.
async fn unread(service: SocketAddr) -> (SendRequest<Bytes>, h2::PingPong) {
    let (mut from_service, mut to_service) = TcpStream::connect(service).await.expect("it listens").into_split();
    let (client, other) = duplex(1 << 20);
    let (mut from_client, mut to_client) = split(other);
    tokio::spawn(async move { copy(&mut from_client, &mut to_service).await });
    tokio::spawn(async move {
        let mut first = (&mut from_service).take(READ_BYTES);
        let _ = copy(&mut first, &mut to_client).await;
        pending::<()>().await;
    });
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 24).initial_connection_window_size(1 << 30);
    let (sender, mut connection) = builder.handshake::<_, Bytes>(client).await.expect("a connection");
    let pings = connection.ping_pong().expect("the first handle");
    tokio::spawn(async move { drop(connection.await) });
    (sender, pings)
}

fn request() -> RenderRequest {
    RenderRequest { conversation: Some(conversation(vec![text("user", "any")])), ..RenderRequest::default() }
}

/// Starts a call, which ends if the result is dropped.
async fn call(sender: &SendRequest<Bytes>) -> ResponseFuture {
    let message = request().encode_to_vec();
    let length = u32::try_from(message.len()).expect("a small message").to_be_bytes();
    let request = Request::post("http://localhost/tandem.render.v1.RenderService/Render")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let mut sender = sender.clone().ready().await.expect("an open connection");
    let (response, mut body) = sender.send_request(request.body(()).expect("a request"), false).expect("it is sent");
    body.send_data([&[0], &length[..], &message].concat().into(), true).expect("it is sent");
    response
}

async fn is_answered(service: &Running) -> bool {
    let client = RenderServiceClient::new(service.channel().await);
    client.max_decoding_message_size(usize::MAX).render(request()).await.is_ok()
}

/// Waits until this is true, at most a minute.
async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let repeat = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), repeat).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_no_byte_keeps_no_call() {
    let (_model, service) = start(ServeArgs { max_calls: 8, answer_patience_seconds: 5, ..ServeArgs::default() }).await;
    for sends_ping in [false, true] {
        let (sender, mut pings) = unread(service.address).await;
        let mut calls = Vec::new();
        for _ in 0..CALLS {
            calls.push(call(&sender).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if sends_ping {
            // HTTP/2 reads nothing more before it has answered.
            pings.send_ping(Ping::opaque()).expect("it is sent");
        }
        eventually("the calls are taken", async || !is_answered(&service).await).await;
        eventually("the calls are free", async || is_answered(&service).await).await;
        drop(calls);
    }
}

/// Sends a gRPC-Web request to the health service over HTTP/1.1, and some bytes after it.
async fn health(service: SocketAddr, method: &str, after: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(service).await.expect("it listens");
    let head = format!(
        "POST /grpc.health.v1.Health/{method} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/grpc-web\r\n\
         content-length: 5\r\n\r\n"
    );
    let _ = stream.write_all(&[head.as_bytes(), &[0; 5], after].concat()).await;
    stream
}

async fn is_served(stream: &mut TcpStream) -> bool {
    let mut start = [0; 12];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_exact(&mut start)).await;
    matches!(read, Ok(Ok(_))) && &start == b"HTTP/1.1 200"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_keeps_no_connection_although_it_sent_another_byte() {
    let args = ServeArgs { max_calls: 4, max_connections: 16, answer_patience_seconds: 1, ..ServeArgs::default() };
    let (_model, service) = start(args).await;
    let check = async || is_served(&mut health(service.address, "Check", b"").await).await;
    for _ in 0..2 {
        let mut watch = health(service.address, "Watch", b"P").await;
        assert!(is_served(&mut watch).await);
        // It is closed, with an RST because not all was read.
    }
    eventually("the connections are free", check).await;
}
