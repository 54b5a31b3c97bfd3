//! Replicas that are stuck or break the contract: a task resumes on another one, and for a while no
//! other task is sent there.

mod figures;
mod pace;
mod progress;
pub(super) mod proxy;
mod refusals;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use render_svc::args::GenerationArgs;
use render_svc::catalog::ModelCatalog;
use render_svc::generation::{GenerationClient, HealthCounts};
use tandem_common::pb::generate::v1::generate_response::Event as Generated;
use tandem_common::pb::generate::v1::{self as generate, FinishReason};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_tests::fakes::replica::{Replica, accepted, at_once, ended, part};
use tandem_tests::{Running, default_catalog, serve_catalog_with_generator};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use self::proxy::{Proxy, Way};
use super::{ask, task};

/// Returns a task whose salt decides which replica it prefers. It has no grammar, whose output may be empty.
fn salted(number: usize) -> RunTaskRequest {
    RunTaskRequest { cache_salt: number.to_string(), ..task(number % 7, 8) }
}

fn good() -> Vec<Generated> {
    [vec![accepted(), part("good", &[7])], ended(FinishReason::Length)].concat()
}

/// Returns a replica whose answer is "good".
fn honest() -> Replica {
    Replica::of(good())
}

fn progress(step_seconds: i64) -> Generated {
    let age = Duration::from_secs(step_seconds.unsigned_abs());
    Generated::Progress(generate::Progress { last_step_age: age.try_into().ok(), ..generate::Progress::default() })
}

fn finished(reason: i32, output_index: u32) -> Generated {
    Generated::Finished(generate::Finished { reason, output_index, ..generate::Finished::default() })
}

fn summary() -> Generated {
    Generated::Summary(generate::Summary::default())
}

/// Serves tasks in front of replicas, once the health of each is known.
async fn front_of(catalog: Arc<ModelCatalog>, addresses: &[&str]) -> (Running, TaskServiceClient<Channel>) {
    let config = generation_args(addresses).config().expect("addresses");
    let generator = GenerationClient::connect(&config).expect("no credentials");
    let is_known =
        |HealthCounts { healthy, unknown, unhealthy }| unknown == 0 && healthy + unhealthy == addresses.len();
    let start = Instant::now();
    while !is_known(generator.health_counts()) && start.elapsed() < Duration::from_secs(10) {
        sleep(Duration::from_millis(5)).await;
    }
    let service = serve_catalog_with_generator(catalog, Some(generator), ServeArgs::default()).await;
    let client = TaskServiceClient::new(service.channel().await);
    (service, client)
}

fn generation_args(addresses: &[&str]) -> GenerationArgs {
    let generate = addresses.iter().map(|address| format!("http://{address}").parse().expect("an address")).collect();
    GenerationArgs { generate, ..GenerationArgs::default() }
}

/// Returns each kind of nonsense with a part of the error that names it.
fn lies() -> Vec<(Result<Vec<Generated>, Status>, &'static str)> {
    let start = || vec![accepted(), part("good", &[7])];
    let after = |events: Vec<Generated>| Ok([start(), events].concat());
    let length = FinishReason::Length.into();
    let delta = |text: String, output_index| {
        Generated::Delta(generate::Delta { text, output_index, token_ids: vec![7], ..generate::Delta::default() })
    };
    vec![
        (Ok(vec![part("bad", &[7])]), "`delta` before `accepted`"),
        (Ok(ended(FinishReason::Length)), "`finished` before `accepted`"),
        (Ok(vec![progress(0), summary()]), "`summary` before `accepted`"),
        (after(vec![accepted()]), "a second `accepted`"),
        (after(vec![summary()]), "`summary` before `finished`"),
        (after(vec![finished(length, 0), finished(length, 0)]), "a second `finished`"),
        (after(vec![finished(length, 0), part("bad", &[8])]), "`delta` after `finished`"),
        (after(vec![finished(length, 0), summary(), summary()]), "after `summary`"),
        (after(vec![finished(length, 0), summary(), part("bad", &[8])]), "after `summary`"),
        (after(vec![finished(0, 0), summary()]), "finish reason 0"),
        (after(vec![finished(99, 0), summary()]), "finish reason 99"),
        (after(vec![finished(length, 1), summary()]), "output_index 1"),
        (after(vec![delta("bad".to_owned(), 3)]), "output_index 3"),
        (after(ended(FinishReason::Deadline)), "DEADLINE before the deadline"),
        (Err(Status::deadline_exceeded("late")), "DEADLINE_EXCEEDED before the deadline"),
        (after(vec![delta("x".repeat(65 << 20), 0)]), "cannot be read"),
        (after(vec![progress(60)]), "last step"),
        (after(vec![Generated::Progress(generate::Progress::default())]), "without the age of the engine's last step"),
        (after(vec![progress(0); 2000]), "`progress` events within"),
        (Ok(vec![progress(0); 2000]), "`progress` events within"),
        (after(vec![part("bad", &[8; 8])]), "sent 9 tokens, requested at most 8"),
        (after(vec![delta("x".repeat(20_000), 0)]), "bytes of text for 2 tokens"),
        (after(vec![Generated::Delta(generate::Delta::default()); 65]), "65 deltas without output in a row"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_of_a_replica_is_its_fault_and_the_task_resumes_elsewhere() {
    let catalog = default_catalog();
    for (lie, problem) in lies() {
        let liar = Replica::playing(lie.map(at_once));
        let (_service, client) = front_of(Arc::clone(&catalog), &[&liar.serve().await]).await;
        let status = ask(client, salted(0), watch::Sender::new(0)).await.expect_err(problem);
        assert!(status.message().contains(problem), "{problem}: {status}");

        let (liar, honest) = (liar.again(), honest());
        let addresses = [liar.serve().await, honest.serve().await];
        let (_service, client) = front_of(Arc::clone(&catalog), &addresses.each_ref().map(String::as_str)).await;
        let mut number = 0;
        while liar.calls() == 0 || number < 8 {
            let answer = ask(client.clone(), salted(number), watch::Sender::new(0)).await;
            assert_eq!(answer.expect(problem).text, "good", "{problem}");
            number += 1;
            assert!(number < 500, "{problem}: the replica gets no task");
        }
        // It is ejected after its first call, for five seconds.
        let (calls, ejected) = (liar.calls(), Instant::now());
        for number in 0..8 {
            ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect(problem);
        }
        if ejected.elapsed() < Duration::from_secs(4) {
            assert_eq!(liar.calls(), calls, "{problem}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_fails_every_task_between_good_health_checks_is_ejected() {
    let (failing, honest) = (Replica::of(vec![accepted(), part("good", &[7])]), honest());
    let addresses = [failing.serve().await, honest.serve().await];
    let (_service, client) = front_of(default_catalog(), &addresses.each_ref().map(String::as_str)).await;
    let mut number = 0;
    while failing.calls() < 5 {
        let answer = ask(client.clone(), salted(number), watch::Sender::new(0)).await;
        assert_eq!(answer.expect("an answer").text, "good");
        number += 1;
        assert!(number < 2_000, "the replica has {} calls", failing.calls());
        sleep(Duration::from_millis(10)).await;
    }
    let ejected = Instant::now();
    for number in 0..16 {
        ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect("an answer");
        sleep(Duration::from_millis(20)).await;
    }
    if ejected.elapsed() < Duration::from_secs(4) {
        assert_eq!(failing.calls(), 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_end_outputs_early_are_left_and_then_ejected() {
    for reason in [FinishReason::Error, FinishReason::Cancelled] {
        let failing = || Replica::of([vec![accepted()], ended(reason)].concat());
        let (first, second, honest) = (failing(), failing(), honest());
        let addresses = [first.serve().await, second.serve().await, honest.serve().await];
        let (_service, client) = front_of(default_catalog(), &addresses.each_ref().map(String::as_str)).await;
        let start = Instant::now();
        let mut number = 0;
        // A replica is ejected when five of its seconds had such an end and none a success.
        while start.elapsed() < Duration::from_secs(8) {
            let answer = ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect("an answer");
            assert_eq!(answer.text, "good", "{reason:?}");
            number += 1;
            sleep(Duration::from_millis(20)).await;
        }
        let calls = first.calls() + second.calls();
        for number in 0..16 {
            ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect("an answer");
        }
        let further = first.calls() + second.calls() - calls;
        assert!(calls >= 10 && further <= 2, "{calls} calls, then {further}, {reason:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_waits_for_a_replica_sends_empty_progress() {
    let mut events = at_once(vec![accepted(), part("good", &[7])]);
    events.push((Duration::from_secs(60), summary()));
    let (_service, mut client) = front_of(default_catalog(), &[&Replica::playing(Ok(events)).serve().await]).await;
    let mut stream = client.run_task(salted(0)).await.expect("a stream").into_inner();
    let mut is_alive = false;
    while let Ok(Some(response)) = stream.message().await {
        is_alive |=
            matches!(response.event, Some(Event::Progress(progress)) if progress == generate::Progress::default());
    }
    assert!(is_alive);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_task_that_another_replica_rejects_is_not_the_callers_fault() {
    let mut details = ErrorDetails::with_error_info("INVALID_REQUEST", "tandem", HashMap::new());
    details.add_bad_request_violation("resume.generated_tokens", "must be fewer");
    let rejects = Replica::playing(Err(Status::with_error_details(Code::InvalidArgument, "must be fewer", details)));
    let dies = Replica::of(vec![accepted(), part("good", &[7])]);
    let addresses = [dies.serve().await, rejects.serve().await];
    let (_service, client) = front_of(default_catalog(), &addresses.each_ref().map(String::as_str)).await;
    for number in 0..500 {
        let status = ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect_err("no answer");
        if dies.calls() > 0 {
            assert!(status.message().contains("GENERATION_UNAVAILABLE"), "{status}");
            return;
        }
        assert_eq!(status.code(), Code::InvalidArgument, "no replica has accepted it");
    }
    panic!("the replica gets no task");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_a_replica_cancels_is_answered_by_another() {
    let (cancels, honest) = (Replica::playing(Err(Status::cancelled("without a cause"))), honest());
    let addresses = [cancels.serve().await, honest.serve().await];
    let (_service, client) = front_of(default_catalog(), &addresses.each_ref().map(String::as_str)).await;
    for number in 0..500 {
        let answer = ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect("an answer");
        assert_eq!(answer.text, "good");
        if cancels.calls() > 0 {
            return;
        }
    }
    panic!("the replica gets no task");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_upload_is_not_the_replicas_fault() {
    let details = ErrorDetails::with_error_info("REQUEST_TOO_SLOW", "tandem", HashMap::new());
    let slow = Status::with_error_details(Code::DeadlineExceeded, "the message did not arrive", details);
    let replica = Replica::playing(Err(slow));
    let (_service, client) = front_of(default_catalog(), &[&replica.serve().await]).await;
    for number in 0..3 {
        let status = ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect_err("too slow");
        assert!(!status.message().contains("broke the contract"), "{status}");
    }
    assert_eq!(replica.calls(), 3, "it is not ejected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_answers_health_checks_only_is_ejected_and_tried_again_by_one_task() {
    let (mute, honest) = (Replica::mute(), honest());
    let addresses = [mute.serve().await, honest.serve().await];
    let (_service, client) = front_of(default_catalog(), &addresses.each_ref().map(String::as_str)).await;
    let (mut number, start) = (0, Instant::now());
    while mute.calls() < 2 {
        let answer = ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect("an answer");
        assert_eq!(answer.text, "good");
        number += 1;
        assert!(start.elapsed() < Duration::from_secs(60), "no task probes the replica");
        sleep(Duration::from_millis(10)).await;
    }
    // The first ejection takes five seconds.
    assert!(start.elapsed() > Duration::from_secs(5), "{:?}", start.elapsed());
    let (calls, until) = (mute.calls(), Instant::now() + Duration::from_secs(5));
    while Instant::now() < until {
        ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect("an answer");
        number += 1;
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(mute.calls(), calls, "the second ejection is longer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_waits_gets_progress_and_stays_with_its_replica() {
    let waits = (0..4).map(|_| (Duration::from_secs(1), progress(0)));
    let busy = Replica::playing(Ok(waits.chain(at_once(good())).collect()));
    let (_service, mut client) = front_of(default_catalog(), &[&busy.serve().await]).await;
    let mut stream = client.run_task(salted(0)).await.expect("accepted").into_inner();
    let (mut count, mut is_whole) = (0, false);
    while let Some(response) = stream.message().await.expect("an event") {
        match response.event.expect("an event") {
            Event::Progress(_) => count += 1,
            Event::Finished(finished) => is_whole = finished.message.is_some(),
            _ => {}
        }
    }
    assert_eq!((count, is_whole, busy.calls()), (4, true, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_reads_slowly_does_not_make_its_replica_look_stuck() {
    let text = "x".repeat(4 << 10);
    let parts = (0..960).map(|id| part(&text, &[id])).collect();
    let fast = Replica::of([vec![accepted()], parts, ended(FinishReason::Length)].concat());
    let (_service, client) = front_of(default_catalog(), &[&fast.serve().await]).await;
    // The last event has the answer twice: as it is, and its parts.
    let mut client = client.max_decoding_message_size(16 << 20);
    let mut stream = client.run_task(task(0, 960)).await.expect("accepted").into_inner();
    stream.message().await.expect("an event");
    sleep(Duration::from_secs(6)).await;
    let mut bytes = 0;
    while let Some(response) = stream.message().await.expect("an event") {
        if let Some(Event::Delta(delta)) = response.event {
            bytes += delta.text.len();
        }
    }
    assert_eq!((bytes, fast.calls()), (960 * text.len(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_replaced() {
    let proxy = Proxy::start(honest().serve().await).await;
    let args = generation_args(&[&proxy.address]);
    let client = GenerationClient::connect(&args.config().expect("addresses")).expect("no credentials");
    let wait_for = async |health: HealthCounts| {
        let start = Instant::now();
        while client.health_counts() != health {
            assert!(start.elapsed() < Duration::from_secs(30), "not {health:?}");
            sleep(Duration::from_millis(10)).await;
        }
    };
    let (healthy, unhealthy) = (
        HealthCounts { healthy: 1, ..HealthCounts::default() },
        HealthCounts { unhealthy: 1, ..HealthCounts::default() },
    );
    wait_for(healthy).await;
    proxy.set(Way::HalfOpen);
    wait_for(unhealthy).await;
    // Only new connections work.
    proxy.set(Way::Open);
    wait_for(healthy).await;
}
