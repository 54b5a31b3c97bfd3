//! A caller's deadline applies in every phase of its call: while it waits for a core, and in the
//! generation service.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use render_svc::args::GenerationArgs;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::serve::{self, ServeArgs};
use tandem_tests::failure::failed;
use tandem_tests::fakes::replica::{Replica, accepted};
use tandem_tests::{ModelFolder, Running, default_catalog, render_service, serve_catalog_with_generation};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// A template that takes seconds for the text `spin`.
const TEMPLATE: &str = "{% if messages[0].content == 'spin' %}{% for i in range(100000) %}{% for j in range(50) %}{% endfor %}\
    {% endfor %}{% endif %}{{ messages[0].content }}";

fn conversation(text: &str) -> Option<chat::Conversation> {
    let content = Some(chat::chat_message::Content::Text(text.to_owned()));
    let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
    Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_applies_while_a_render_waits_for_a_core() {
    let model = ModelFolder::new("tiny").with_template(TEMPLATE);
    let service = render_service(&[model.path()], None).await;
    let client = RenderServiceClient::new(service.channel().await);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let slow = |_| {
        let mut client = client.clone();
        let request = RenderRequest { conversation: conversation("spin"), ..RenderRequest::default() };
        tokio::spawn(async move { client.render(request).await })
    };
    let slow: Vec<_> = (0..8 * cores).map(slow).collect();
    // The slow calls arrive before the call below.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let long = RenderRequest { conversation: conversation(&"long ".repeat(2000)), ..RenderRequest::default() };
    let mut request = Request::new(long);
    request.set_timeout(Duration::from_millis(200));
    let status = client.clone().render(request).await.expect_err("the deadline passes first");
    // The status is the service's own, unless the client's timer was first and reports CANCELLED.
    match status.code() {
        Code::Cancelled => {}
        code => assert_eq!((code, failed(&status).reason.as_str()), (Code::DeadlineExceeded, "DEADLINE_EXCEEDED")),
    }
    assert!(slow.iter().any(|slow| !slow.is_finished()), "it did not wait");
    slow.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The deadline of a caller, as its request states it.
type Timeout = Arc<Mutex<Option<String>>>;

/// Returns a generation service that records its caller's deadline. It rejects the call, or begins
/// an answer and then sends nothing.
fn silent(timeout: &Timeout, rejects: bool) -> Replica {
    let timeout = Arc::clone(timeout);
    Replica::new(move |request, _| {
        let found = request.metadata().get("grpc-timeout").and_then(|value| value.to_str().ok());
        *timeout.lock().expect("no panic") = found.map(ToOwned::to_owned);
        if rejects { Err(Status::invalid_argument("that is all")) } else { Ok(vec![(Duration::MAX, accepted())]) }
    })
}

/// Starts a render service that calls such a generation service.
async fn before(generation: Replica) -> (Running, TaskServiceClient<Channel>) {
    let generate = vec![format!("http://{}", generation.serve().await).parse().expect("an address")];
    let args = GenerationArgs { generate, ..GenerationArgs::default() };
    let service = serve_catalog_with_generation(default_catalog(), args, ServeArgs::default()).await;
    let client = TaskServiceClient::new(service.channel().await);
    (service, client)
}

fn task(timeout: Option<Duration>) -> Request<RunTaskRequest> {
    let mut request = Request::new(RunTaskRequest { conversation: conversation("Hi"), ..RunTaskRequest::default() });
    timeout.into_iter().for_each(|timeout| request.set_timeout(timeout));
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn task_ends_at_its_deadline_if_generation_sends_nothing() {
    let (_service, mut client) = before(silent(&Timeout::default(), false)).await;
    let mut answer = client.run_task(task(Some(Duration::from_secs(5)))).await.expect("accepted").into_inner();
    let end = async {
        loop {
            match answer.message().await {
                Ok(event) => assert!(event.is_some(), "an incomplete answer must end with an error"),
                Err(status) => return status,
            }
        }
    };
    let status = tokio::time::timeout(Duration::from_secs(60), end).await.expect("it ends");
    assert_eq!((status.code(), failed(&status).reason.as_str()), (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn remaining_deadline_is_sent_to_the_generation_service() {
    let recorded = Timeout::default();
    let (_service, mut client) = before(silent(&recorded, true)).await;
    let run = async |client: &mut TaskServiceClient<_>, timeout: Option<Duration>| {
        let status = client.run_task(task(timeout)).await.expect_err("should be refused");
        assert_ne!(status.code(), Code::DeadlineExceeded, "{status}");
        recorded.lock().expect("no panic").take()
    };
    let timeout = run(&mut client, Some(Duration::from_secs(50))).await.expect("a deadline");
    // A timeout has at most eight digits and a unit: 50 s in nanoseconds does not fit, in
    // microseconds it does.
    let left: u64 = timeout.strip_suffix('u').expect("microseconds").parse().expect("a number");
    assert!((1..50_000_000).contains(&left), "{timeout}");
    assert_eq!(run(&mut client, None).await, None);
}

fn timeout(header: &str) -> Option<std::ops::RangeInclusive<f64>> {
    let mut metadata = tonic::metadata::MetadataMap::new();
    metadata.insert("grpc-timeout", header.parse().expect("a header"));
    let before = Instant::now();
    let deadline = serve::deadline(&metadata)?;
    let seconds = |start: Instant| deadline.duration_since(start).as_secs_f64();
    Some(seconds(Instant::now())..=seconds(before))
}

#[test]
fn every_grpc_timeout_unit_is_parsed() {
    let units: [(&str, f64); 12] = [
        ("3H", 10_800.0),
        ("3M", 180.0),
        ("30S", 30.0),
        ("40000m", 40.0),
        ("50000000u", 50.0),
        ("99999999n", 0.099_999_999),
        ("99999999H", 99_999_999.0 * 3600.0),
        ("99999999M", 99_999_999.0 * 60.0),
        ("99999999S", 99_999_999.0),
        ("99999999m", 99_999.999),
        ("99999999u", 99.999_999),
        ("0S", 0.0),
    ];
    for (header, seconds) in units {
        let found = timeout(header).unwrap_or_else(|| panic!("{header} is valid"));
        // The stream ends early, so that its last event arrives: by a tenth, at most 100 ms.
        let end = seconds - (seconds / 10.0).min(0.1);
        assert!(*found.start() - 1e-9 <= end && end <= *found.end() + 1e-9, "{header}: {found:?}");
    }
}

#[test]
fn malformed_timeout_sets_no_deadline() {
    for header in ["", "S", "5", "5s", "5h", "5x", "123456789S", "+5S", "-5S", "1.5S", "5 S", " 5S", "5SS", "0x5S"] {
        assert!(timeout(header).is_none(), "{header:?}");
    }
    assert!(serve::deadline(&tonic::metadata::MetadataMap::new()).is_none());
}
