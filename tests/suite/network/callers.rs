//! Callers: their identity, and which share of the calls one of them gets.

use std::sync::Arc;
use std::time::Duration;

use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use tandem_common::admission::{Exhausted, Permit, Permits};
use tandem_common::serve::{SecurityArgs, ServeArgs};
use tandem_tests::{ModelFolder, Running, error_texts, render_service_with_args};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tonic::Status;
use tonic::codegen::Bytes;

const TOKENS: &str = "\
first-secret name=first
second-secret name=second
front-secret name=front delegate
";
/// The limit of all calls, and the share of one caller.
const MAX_CALLS: usize = 4;
const SHARE: usize = 3;
/// A gRPC message without fields.
const EMPTY_MESSAGE: &[u8] = &[0; 5];

/// A service with tokens and few calls, and one connection to it.
struct Service {
    _service: Running,
    _files: (TempDir, ModelFolder),
    sender: SendRequest<Bytes>,
}

impl Service {
    async fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("tokens");
        std::fs::write(&file, TOKENS).expect("a file");
        let security = SecurityArgs { token_file: Some(file), ..SecurityArgs::default() };
        let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").with_tokenizer();
        let args = ServeArgs { max_calls: MAX_CALLS, security, ..ServeArgs::default() };
        let service = render_service_with_args(&[model.path()], args).await;
        let stream = TcpStream::connect(service.address).await.expect("it listens");
        let (sender, connection) = h2::client::handshake(stream).await.expect("a connection");
        tokio::spawn(connection);
        Self { _service: service, _files: (folder, model), sender }
    }

    /// Starts a call.
    async fn call(&mut self, token: &str, caller: Option<&str>, message: Option<&'static [u8]>) -> Call {
        let mut request = Request::post("http://localhost/tandem.render.v1.RenderService/Tokenize")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", format!("Bearer {token}-secret"));
        if let Some(caller) = caller {
            request = request.header("x-tandem-caller", caller);
        }
        let mut sender = self.sender.clone().ready().await.expect("the connection is open");
        let (response, mut body) =
            sender.send_request(request.body(()).expect("a request"), false).expect("it is sent");
        if let Some(message) = message {
            body.send_data(message.into(), true).expect("it is sent");
        }
        Call { response, _body: body }
    }

    /// Starts as many calls as one caller may have. They do not end. Also returns the refusal of the
    /// next call.
    async fn fill(&mut self, token: &str, caller: Option<&str>) -> (Vec<Call>, String) {
        // The service may take up the next call first, which then gets the place of one of them.
        for pause in 0..12 {
            let mut calls = Vec::new();
            for _ in 0..SHARE {
                calls.push(self.call(token, caller, None).await);
            }
            tokio::time::sleep(Duration::from_millis(1 << pause)).await;
            if let Some(refusal) = self.refusal(token, caller).await {
                return (calls, refusal);
            }
        }
        panic!("no call is refused");
    }

    /// Returns true if a call is not refused, once the service has noticed the ended ones.
    async fn accepts(&mut self, token: &str, caller: Option<&str>) -> bool {
        for pause in 0..12 {
            if self.refusal(token, caller).await.is_none() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(1 << pause)).await;
        }
        false
    }

    /// Returns the message of the refusal of a call, or None if it is not refused.
    async fn refusal(&mut self, token: &str, caller: Option<&str>) -> Option<String> {
        let call = self.call(token, caller, Some(EMPTY_MESSAGE)).await;
        let response = call.response.await.expect("a response");
        let status = Status::from_header_map(&headers(response));
        status
            .filter(|status| status.code() == tonic::Code::ResourceExhausted)
            .map(|status| status.message().to_owned())
    }
}

fn headers<T>(response: Response<T>) -> HeaderMap {
    response.into_parts().0.headers
}

/// A call whose message may be unfinished.
struct Call {
    response: h2::client::ResponseFuture,
    _body: h2::SendStream<Bytes>,
}

#[tokio::test(flavor = "multi_thread")]
async fn one_caller_leaves_calls_to_others() {
    let mut service = Service::start().await;
    let (_calls, refusal) = service.fill("first", None).await;
    error_texts::check("network/caller-share", refusal);
    assert!(service.accepts("second", None).await);
    let named = service.refusal("first", Some("token:second")).await;
    assert!(named.is_some(), "the token of one caller cannot name another");
}

#[tokio::test(flavor = "multi_thread")]
async fn delegate_calls_for_the_callers_that_it_names() {
    let mut service = Service::start().await;
    let _filled = service.fill("front", Some("token:first")).await;
    assert!(service.refusal("first", None).await.is_some(), "the same caller without the delegate");
    assert!(service.accepts("front", Some("token:second")).await);
    assert!(service.accepts("front", Some("not plain")).await, "the delegate itself");
}

fn callers() -> [Arc<str>; 2] {
    ["greedy", "polite"].map(Arc::from)
}

fn take(permits: &Permits, caller: &Arc<str>) -> Result<Permit, Exhausted> {
    permits.acquire(caller)
}

#[test]
fn freed_permits_can_be_taken_again() {
    let (permits, [greedy, polite]) = (Permits::new(8), callers());
    let taken: Vec<_> = (0..6).map(|_| take(&permits, &greedy).expect("a permit")).collect();
    assert_eq!(take(&permits, &greedy).err(), Some(Exhausted::OfCaller));
    let _others = [take(&permits, &polite).expect("the reserve"), take(&permits, &polite).expect("the reserve")];
    assert_eq!(take(&permits, &polite).err(), Some(Exhausted::All));
    drop(taken);
    assert_eq!(permits.held(), 2);
    take(&permits, &greedy).expect("a freed permit");
}

#[test]
fn few_permits_have_no_reserve() {
    let (permits, [greedy, polite]) = (Permits::new(1), callers());
    let _one = take(&permits, &greedy).expect("a permit");
    assert_eq!(take(&permits, &polite).err(), Some(Exhausted::All));
}
