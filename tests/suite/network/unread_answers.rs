//! Answers that a client does not read: they keep their places and count towards the limit of all messages.
//! After a while they are abandoned if other answers of their connection are read, else it is closed.

use std::time::{Duration, Instant};

use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use prost::Message as _;
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::serve::ServeArgs;
use tandem_tests::conversations::{conversation, text};
use tandem_tests::failure::failed;
use tandem_tests::{ModelFolder, Running, render_service_with_args};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::codegen::Bytes;
use tonic::{Code, Status};

const LIST_MODELS: &str = "tandem.render.v1.RegistryService/ListModels";
const RENDER: &str = "tandem.render.v1.RenderService/Render";
/// An answer that HTTP/2 takes whole, although its client does not read it.
const ANSWER_BYTES: usize = 300_000;
/// The window of a client that does not read.
const WINDOW: u32 = 1 << 16;

async fn start(args: ServeArgs) -> (ModelFolder, Running) {
    let model = ModelFolder::new("tiny").with_template(&format!("{{{{ 'x' * {ANSWER_BYTES} }}}}"));
    let service = render_service_with_args(&[model.path()], args).await;
    (model, service)
}

/// Opens a connection whose streams have this window until the client reads.
async fn connect(service: &Running, window: u32) -> (SendRequest<Bytes>, JoinHandle<()>) {
    let stream = TcpStream::connect(service.address).await.expect("it listens");
    let mut client = h2::client::Builder::new();
    client.initial_window_size(window).initial_connection_window_size(1 << 24);
    let (sender, connection) = client.handshake::<_, Bytes>(stream).await.expect("a connection");
    let closed = async { drop(connection.await) };
    (sender, tokio::spawn(closed))
}

/// Starts a call without a message.
async fn begin(sender: &SendRequest<Bytes>, method: &str) -> (SendStream<Bytes>, ResponseFuture) {
    let request = Request::post(format!("http://localhost/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let mut sender = sender.clone().ready().await.expect("an open connection");
    let (response, body) = sender.send_request(request.body(()).expect("a request"), false).expect("it is sent");
    (body, response)
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a small message").to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

/// Calls a method, and returns the response before its body is read.
async fn call(sender: &SendRequest<Bytes>, method: &str, message: &[u8]) -> Response<RecvStream> {
    let (mut body, response) = begin(sender, method).await;
    // A refusal may come first.
    let _ = body.send_data(framed(message), true);
    response.await.expect("headers")
}

async fn render(sender: &SendRequest<Bytes>) -> Response<RecvStream> {
    let request =
        RenderRequest { conversation: Some(conversation(vec![text("user", "any")])), ..RenderRequest::default() };
    call(sender, RENDER, &request.encode_to_vec()).await
}

/// Returns the error that an answer without a body has.
fn error(response: &Response<RecvStream>) -> Option<Status> {
    Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok)
}

/// Reads a body, and returns its length and its trailers.
async fn read(response: Response<RecvStream>) -> (usize, HeaderMap) {
    let mut body = response.into_body();
    let mut length = 0;
    while let Some(data) = body.data().await {
        let bytes = data.expect("data").len();
        length += bytes;
        body.flow_control().release_capacity(bytes).expect("it was received");
    }
    (length, body.trailers().await.expect("an end").expect("trailers"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_with_unread_answers_is_closed() {
    let args = ServeArgs { max_calls: 1, answer_patience_seconds: 1, ..ServeArgs::default() };
    let (_model, service) = start(args).await;
    // The small answer is not read at all, the large one in part.
    for (window, method) in [(0, LIST_MODELS), (1, LIST_MODELS), (1, RENDER), (WINDOW, RENDER)] {
        let (sender, closed) = connect(&service, window).await;
        let unread = if method == RENDER { render(&sender).await } else { call(&sender, method, &[]).await };
        assert_eq!(error(&unread).map(|status| failed(&status).reason), None, "its body waits for the window");
        let refused = error(&call(&sender, LIST_MODELS, &[]).await).expect("the only place is taken");
        assert_eq!(failed(&refused).reason, "OVERLOADED", "{method} with a window of {window}");
        let closed = tokio::time::timeout(Duration::from_secs(60), closed).await;
        closed.expect("the service closes the connection").expect("no panic");
    }
    // The only place is free again.
    let (sender, _closed) = connect(&service, WINDOW).await;
    let answer = call(&sender, LIST_MODELS, &[]).await;
    assert!(error(&answer).is_none(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_half_closed_late_is_an_unread_answer_too() {
    let args = ServeArgs { max_calls: 1, answer_patience_seconds: 1, ..ServeArgs::default() };
    let (_model, service) = start(args).await;
    let (sender, closed) = connect(&service, 1).await;
    let request = RenderRequest { conversation: Some(conversation(vec![text("user", "any")])), ..Default::default() };
    let (mut body, response) = begin(&sender, RENDER).await;
    body.send_data(framed(&request.encode_to_vec()), false).expect("it is sent");
    tokio::time::sleep(Duration::from_millis(100)).await;
    body.send_data(Bytes::new(), true).expect("it is sent");
    let _unread = response.await.expect("headers");
    let closed = tokio::time::timeout(Duration::from_secs(60), closed).await;
    closed.expect("the service closes the connection").expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_read_slowly_arrives() {
    let (_model, service) = start(ServeArgs { answer_patience_seconds: 1, ..ServeArgs::default() }).await;
    let (sender, _closed) = connect(&service, WINDOW).await;
    let mut body = render(&sender).await.into_body();
    let mut length = 0;
    while let Some(data) = body.data().await {
        length += data.expect("data").len();
        // In all, longer than the patience.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let used = body.flow_control().used_capacity();
        body.flow_control().release_capacity(used).expect("it was received");
    }
    assert!(length > ANSWER_BYTES, "{length}");
    assert_eq!(body.trailers().await.expect("an end").expect("trailers")["grpc-status"], "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_keeps_its_place_until_it_is_sent() {
    let (_model, service) = start(ServeArgs { max_calls: 1, ..ServeArgs::default() }).await;
    let (sender, _closed) = connect(&service, WINDOW).await;
    let unread = render(&sender).await;
    assert!(error(&unread).is_none(), "{unread:?}");
    let refused = error(&render(&sender).await).expect("the only place is taken");
    assert_eq!(failed(&refused).reason, "OVERLOADED");

    let (length, trailers) = read(unread).await;
    assert!(length > ANSWER_BYTES, "{length}");
    assert_eq!(trailers["grpc-status"], "0");
    // The service frees the place after the last byte.
    let answer = loop {
        let answer = render(&sender).await;
        if error(&answer).is_none() {
            break answer;
        }
    };
    assert_eq!(read(answer).await.1["grpc-status"], "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_answers_count_towards_the_limit_of_all_messages() {
    let args = ServeArgs { max_message_bytes: 1 << 18, ..ServeArgs::default() };
    let (_model, service) = start(args).await;
    let (sender, _closed) = connect(&service, WINDOW).await;
    let mut unread = Vec::new();
    let refused = loop {
        let answer = render(&sender).await;
        match error(&answer) {
            Some(status) => break status,
            None => unread.push(answer),
        }
        assert!(unread.len() < 100, "no answer is refused");
    };
    assert_eq!(failed(&refused).reason, "TOTAL_MESSAGE_BYTES");
    // A part of each answer is sent, and a part is not counted.
    let counted = ANSWER_BYTES - (128 << 10);
    assert!((1 << 20) / ANSWER_BYTES <= unread.len() && unread.len() <= (1 << 20) / counted, "{}", unread.len());
    for answer in unread {
        assert_eq!(read(answer).await.1["grpc-status"], "0");
    }
    let answer = loop {
        let answer = render(&sender).await;
        if error(&answer).is_none() {
            break answer;
        }
    };
    assert_eq!(read(answer).await.1["grpc-status"], "0", "the bytes are free again");
}

/// Reads answers until the time is over. Fails if the connection is closed before.
async fn read_others(sender: &SendRequest<Bytes>, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        let (length, trailers) = read(render(sender).await).await;
        assert!(length > ANSWER_BYTES && trailers["grpc-status"] == "0", "{length}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_answer_beside_others_is_abandoned_alone() {
    let args = ServeArgs { max_calls: 2, answer_patience_seconds: 3, ..ServeArgs::default() };
    let (_model, service) = start(args).await;
    let (sender, _closed) = connect(&service, WINDOW).await;
    let unread = render(&sender).await;
    let mut places = 1;
    for _ in 0..60 {
        read_others(&sender, Duration::from_millis(500)).await;
        let (first, second) = (render(&sender).await, render(&sender).await);
        let answered = [first, second].into_iter().filter(|answer| error(answer).is_none());
        let answered: Vec<_> = answered.collect();
        places = answered.len();
        for answer in answered {
            read(answer).await;
        }
        if places == 2 {
            break;
        }
    }
    assert_eq!(places, 2, "the unread answer keeps its place");
    let mut body = unread.into_body();
    let ended = loop {
        match body.data().await {
            Some(Ok(data)) => body.flow_control().release_capacity(data.len()).expect("it was received"),
            Some(Err(error)) => break error,
            None => panic!("the whole answer was sent"),
        }
    };
    assert!(ended.is_reset(), "{ended}");
    read_others(&sender, Duration::from_millis(100)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_with_many_unread_answers_is_closed_although_others_are_read() {
    let (_model, service) = start(ServeArgs { answer_patience_seconds: 1, ..ServeArgs::default() }).await;
    let (sender, closed) = connect(&service, WINDOW).await;
    let mut unread = Vec::new();
    for _ in 0..6 {
        unread.push(render(&sender).await);
    }
    let reads = tokio::spawn(async move { read_others(&sender, Duration::from_secs(60)).await });
    let closed = tokio::time::timeout(Duration::from_secs(60), closed).await;
    closed.expect("the service closes the connection").expect("no panic");
    reads.abort();
}
