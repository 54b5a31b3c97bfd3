//! Answers that a client does not read: its connection is closed, and the calls have their places
//! again.

use std::time::Duration;

use http::Request;
use tandem_common::serve::ServeArgs;
use tandem_tests::{ModelFolder, render_service_with_args};
use tokio::net::TcpStream;
use tonic::codegen::Bytes;

const PATH: &str = "http://localhost/tandem.render.v1.RegistryService/ListModels";
/// A gRPC message without fields.
const EMPTY_MESSAGE: &[u8] = &[0; 5];

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_with_unread_answers_is_closed() {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}");
    let args = ServeArgs { max_calls: 1, answer_patience_seconds: 1, ..ServeArgs::default() };
    let service = render_service_with_args(&[model.path()], args).await;
    let connect = async |window: u32| {
        let stream = TcpStream::connect(service.address).await.expect("it listens");
        let mut client = h2::client::Builder::new();
        client.initial_window_size(window).initial_connection_window_size(1 << 20);
        let (sender, connection) = client.handshake::<_, Bytes>(stream).await.expect("a connection");
        (sender, tokio::spawn(connection))
    };
    let (sender, connection) = connect(0).await;
    let call = |sender: h2::client::SendRequest<Bytes>| async move {
        let request = Request::post(PATH).header("content-type", "application/grpc").header("te", "trailers");
        let mut sender = sender.ready().await.expect("an open connection");
        let (response, mut body) =
            sender.send_request(request.body(()).expect("a request"), false).expect("it is sent");
        body.send_data(EMPTY_MESSAGE.into(), true).expect("it is sent");
        response.await.expect("headers")
    };
    let unread = call(sender).await;
    assert!(!unread.headers().contains_key("grpc-status"), "its body waits for the window");
    let closed = tokio::time::timeout(Duration::from_secs(60), connection).await;
    let _ = closed.expect("the service closes the connection").expect("no panic");

    // The only place is free again.
    let (sender, _connection) = connect(1 << 16).await;
    let answer = call(sender).await;
    assert!(!answer.headers().contains_key("grpc-status"), "{answer:?}");
}
