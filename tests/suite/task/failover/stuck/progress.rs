//! Replicas that send `progress` events only, and honest ones that wait for long.

use std::time::Duration;

use render_svc::args::GenerationArgs;
use tandem_common::pb::generate::v1::generate_response::Event as Generated;
use tandem_common::pb::generate::v1::{self as generate, FinishReason};
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_tests::fakes::replica::{Replica, accepted, at_once, part};
use tandem_tests::{Running, default_catalog, serve_catalog_with_generation};
use tokio::sync::watch;
use tonic::transport::Channel;

use super::super::ask;
use super::{finished, generation_args, good, honest, progress, salted};

/// Starts a render service that leaves a replica after a second without an advance.
async fn impatient_front_of(replicas: &[&Replica]) -> (Running, TaskServiceClient<Channel>) {
    let mut addresses = Vec::new();
    for replica in replicas {
        addresses.push(replica.serve().await);
    }
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let args = GenerationArgs { generate_stall_seconds: 1, ..generation_args(&addresses) };
    let service = serve_catalog_with_generation(default_catalog(), args, ServeArgs::default()).await;
    let client = TaskServiceClient::new(service.channel().await);
    (service, client)
}

/// Returns `progress` events for three seconds. `change` gets each with its number.
fn three_seconds(change: impl Fn(u32, &mut generate::Progress)) -> Vec<(Duration, Generated)> {
    let event = |number| match progress(0) {
        Generated::Progress(mut progress) => {
            change(number, &mut progress);
            (Duration::from_millis(200), Generated::Progress(progress))
        }
        other => panic!("{other:?}"),
    };
    (1..=15).map(event).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_sends_progress_without_an_advance_is_stuck() {
    let start = || at_once(vec![accepted(), part("good", &[7])]);
    let ended = || at_once(vec![finished(FinishReason::Length.into(), 0)]);
    let same = || three_seconds(|_, progress| progress.computed_prompt_tokens = 1);
    let queued = || three_seconds(|_, progress| progress.queue_place = Some(1));
    let cases = [
        ("before `accepted`", [same(), start(), ended()].concat(), "no advance for 1s"),
        ("after `accepted`", [at_once(vec![accepted()]), same(), start()].concat(), "no advance for 1s"),
        ("after a delta", [start(), same(), ended()].concat(), "no advance for 1s"),
        ("after `finished`", [start(), ended(), queued()].concat(), "no advance for 1s after the end"),
    ];
    for (case, events, problem) in cases {
        let stuck = Replica::playing(Ok(events));
        let (_service, client) = impatient_front_of(&[&stuck]).await;
        let status = ask(client, salted(0), watch::Sender::new(0)).await.expect_err(case);
        assert!(status.message().contains(problem), "{case}: {status}");

        let (stuck, honest) = (stuck.again(), honest());
        let (_service, client) = impatient_front_of(&[&stuck, &honest]).await;
        let mut number = 0;
        while stuck.calls() == 0 {
            let answer = ask(client.clone(), salted(number), watch::Sender::new(0)).await;
            assert_eq!(answer.expect(case).text, "good", "{case}");
            number += 1;
            assert!(number < 500, "{case}: the replica gets no task");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_leaves_a_queue_that_does_not_move_for_a_free_replica() {
    type Change = fn(u32, &mut generate::Progress);
    let changes: [(&str, Change); 3] = [
        ("the same place", |_, progress| progress.queue_place = Some(1)),
        ("two places in turns", |number, progress| progress.queue_place = Some(1 + number % 2)),
        ("growing places", |number, progress| progress.queue_place = Some(number)),
    ];
    for (case, change) in changes {
        let (stuck, honest) = (Replica::playing(Ok(three_seconds(change))), honest());
        let (_service, client) = impatient_front_of(&[&stuck, &honest]).await;
        let mut number = 0;
        while stuck.calls() == 0 {
            let answer = ask(client.clone(), salted(number), watch::Sender::new(0)).await;
            assert_eq!(answer.expect(case).text, "good", "{case}");
            number += 1;
            assert!(number < 500, "{case}: the replica gets no task");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_stays_with_a_replica_while_it_waits_in_the_queue_or_its_prompt_is_computed() {
    let in_queue = three_seconds(|_, progress| progress.queue_place = Some(2));
    let [start, rest] = [at_once(vec![accepted()]), at_once(good().split_off(1))];
    // A preempted output is computed from its start.
    let prefill = three_seconds(|number, progress| progress.computed_prompt_tokens = number / 3 % 3);
    let honest = Replica::playing(Ok([in_queue, start, prefill, rest].concat()));
    let (_service, client) = impatient_front_of(&[&honest]).await;
    let answer = ask(client, salted(0), watch::Sender::new(0)).await.expect("an answer");
    assert_eq!((answer.text.as_str(), honest.calls()), ("good", 1));
}
