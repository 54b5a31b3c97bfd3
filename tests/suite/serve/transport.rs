//! Errors for clients that violate gRPC or HTTP/2. The service keeps running.

use prost::Message;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_tests::error_texts;
use tandem_tests::failure::{Failed, failed};
use tandem_tests::{ModelFolder, Running, render_service};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codegen::Bytes;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;

/// A TokenizeRequest whose text may be invalid UTF-8.
#[derive(Clone, PartialEq, Message)]
struct RawTokenizeRequest {
    #[prost(bytes = "vec", tag = "2")]
    text: Vec<u8>,
}

async fn serve() -> (Running, Channel) {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}");
    let service = render_service(&[model.path()], None).await;
    let channel = service.channel().await;
    (service, channel)
}

async fn call(channel: Channel, method: &'static str, text: Vec<u8>) -> Result<(), Status> {
    let mut client = Grpc::new(channel).max_encoding_message_size(usize::MAX);
    client.ready().await.expect("ready");
    let codec: ProstCodec<RawTokenizeRequest, pb::TokenizeResponse> = ProstCodec::default();
    let request = Request::new(RawTokenizeRequest { text });
    client.unary(request, PathAndQuery::from_static(method), codec).await.map(|_| ())
}

async fn check_still_serving(channel: Channel) {
    let request = pb::TokenizeRequest { text: "a".to_owned(), ..Default::default() };
    let status = RenderServiceClient::new(channel).tokenize(request).await.expect_err("there is no tokenizer");
    assert_eq!(failed(&status).reason, "NO_TOKENIZER");
}

/// Compares the message of a failure with the golden one of its reason.
#[track_caller]
fn check_text(status: &Status, reason: &str) {
    error_texts::check(&format!("serve/{reason}"), status.message());
}

async fn is_refused(method: &'static str, text: Vec<u8>, code: Code, reason: &str) {
    let (_service, channel) = serve().await;
    let status = call(channel.clone(), method, text).await.expect_err("should fail");
    let failure = failed(&status);
    assert_eq!((failure.code, failure.reason.as_str()), (code, reason));
    if reason != "MALFORMED_MESSAGE" {
        // tonic writes the message of MALFORMED_MESSAGE.
        check_text(&status, reason);
    }
    check_still_serving(channel).await;
}

const TOKENIZE: &str = "/tandem.render.v1.RenderService/Tokenize";

#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_not_utf8_is_malformed() {
    is_refused(TOKENIZE, vec![0xff, 0xfe], Code::InvalidArgument, "MALFORMED_MESSAGE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_100_megabytes_is_too_large() {
    is_refused(TOKENIZE, vec![b'a'; 100_000_000], Code::ResourceExhausted, "MESSAGE_TOO_LARGE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_does_not_exist_is_unknown() {
    let method = "/tandem.render.v1.RenderService/Juggle";
    is_refused(method, Vec::new(), Code::Unimplemented, "UNKNOWN_METHOD").await;
    is_refused("/no.such.Service/Call", Vec::new(), Code::Unimplemented, "UNKNOWN_METHOD").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_check_covers_every_service() {
    let (_service, channel) = serve().await;
    let mut client = HealthClient::new(channel);
    for service in ["", "tandem.render.v1.RenderService", "tandem.task.v1.TaskService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let status = client.check(request).await.expect("known").into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service}");
    }
    let request = HealthCheckRequest { service: "tandem.generate.v1.GenerateService".to_owned() };
    let status = client.check(request).await.expect_err("served elsewhere");
    let failed = failed(&status);
    assert_eq!((failed.code, failed.reason.as_str()), (Code::NotFound, "UNKNOWN_NAME"));
}

/// Half of a message.
const HALF: &[u8] = &[0, 0, 0, 0, 9, 1];

/// Sends bytes of a message from a client without its own timer. Returns the failure of the call.
async fn failure_of(bytes: &'static [u8], timeout: Option<&str>) -> Failed {
    let (service, _) = serve().await;
    let stream = TcpStream::connect(service.address).await.expect("it listens");
    let (mut sender, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    let mut request = http::Request::post(format!("http://{}{TOKENIZE}", service.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(timeout) = timeout {
        request = request.header("grpc-timeout", timeout);
    }
    let request = request.body(()).expect("a request");
    let (response, mut unfinished) = sender.send_request(request, false).expect("it is sent");
    unfinished.send_data(Bytes::from_static(bytes), bytes != HALF).expect("it is sent");
    let answer = response.await.expect("an answer");
    let status = Status::from_header_map(answer.headers()).expect("an error");
    let failed = failed(&status);
    check_text(&status, &failed.reason);
    failed
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_before_the_answer_gives_deadline_exceeded() {
    let failed = failure_of(HALF, Some("300m")).await;
    assert_eq!((failed.code, failed.reason.as_str()), (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_time_is_not_made() {
    let failed = failure_of(&[0; 5], Some("0n")).await;
    assert_eq!((failed.code, failed.reason.as_str()), (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn request_incomplete_after_a_minute_is_rejected() {
    let failed = failure_of(HALF, None).await;
    assert_eq!((failed.code, failed.reason.as_str()), (Code::DeadlineExceeded, "REQUEST_TOO_SLOW"));
}
