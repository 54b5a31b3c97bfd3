//! Replicas that are much slower than the others.

use std::time::Duration;

use tandem_common::pb::generate::v1::FinishReason;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_tests::fakes::replica::{Played, Replica, accepted, at_once, ended, not_yet_generated, part};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use super::super::{Answer, ask, task};
use super::{default_catalog, front_of};

/// The tokens of an answer.
const TOKENS: u32 = 40;
/// The tokens of a short answer.
const FEW: u32 = 3;

/// A replica with this pause before each token. It resumes outputs.
fn paced(pause: Duration, tokens: u32) -> Replica {
    let first = at_once(vec![accepted()]).into_iter();
    let tokens = (0..tokens).map(|id| (pause, part("a", &[id])));
    let events: Played = first.chain(tokens).chain(at_once(ended(FinishReason::Length))).collect();
    Replica::new(move |request, _| Ok(not_yet_generated(request.get_ref(), events.clone())))
}

/// Asks for answers of this length at one time. Their salts differ.
async fn ask_for(client: &TaskServiceClient<Channel>, salts: std::ops::Range<usize>, tokens: u32) -> Vec<Answer> {
    let mut answers = JoinSet::new();
    for salt in salts {
        let mut request = task(0, tokens);
        request.cache_salt = salt.to_string();
        let client = client.clone();
        answers.spawn(async move { ask(client, request, watch::Sender::new(0)).await.expect("an answer") });
    }
    answers.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_much_slower_than_the_others_is_left() {
    let (slow, fast) = (paced(Duration::from_millis(500), TOKENS), paced(Duration::from_millis(2), TOKENS));
    let addresses = [slow.serve().await, fast.serve().await];
    let (_service, client) = front_of(default_catalog(), &addresses.each_ref().map(String::as_str)).await;
    let start = Instant::now();
    let (mut salt, mut calls) = (0, 0);
    while slow.calls() == 0 || slow.calls() > calls {
        calls = slow.calls();
        for answer in ask_for(&client, salt..salt + 8, TOKENS).await {
            assert_eq!(answer.text, "a".repeat(TOKENS as usize));
        }
        salt += 8;
        assert!(start.elapsed() < Duration::from_secs(60), "the replica is not left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_replica_is_left_if_all_are_slow() {
    let replicas = [200, 300].map(|pause| paced(Duration::from_millis(pause), TOKENS));
    let addresses = [replicas[0].serve().await, replicas[1].serve().await];
    let (_service, client) = front_of(default_catalog(), &addresses.each_ref().map(String::as_str)).await;
    for answer in ask_for(&client, 0..12, TOKENS).await {
        assert_eq!(answer.text, "a".repeat(TOKENS as usize));
    }
    let calls = replicas.each_ref().map(Replica::calls);
    assert_eq!(calls[0] + calls[1], 12, "no answer changes its replica");
    assert!(calls.iter().all(|calls| *calls > 0), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_replicas_are_left_and_stay_away_though_their_answers_are_short() {
    let fast = paced(Duration::from_millis(20), FEW);
    // One and two of three are slow.
    for pauses in [vec![440, 20], vec![440, 440]] {
        let others: Vec<_> = pauses.iter().map(|pause| paced(Duration::from_millis(*pause), FEW)).collect();
        let slow: Vec<_> =
            others.iter().zip(&pauses).filter(|(_, pause)| **pause == 440).map(|(other, _)| other).collect();
        let calls = || slow.iter().map(|replica| replica.calls()).sum::<usize>();
        let mut addresses = vec![fast.again().serve().await];
        for other in &others {
            addresses.push(other.serve().await);
        }
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        let (_service, client) = front_of(default_catalog(), &addresses).await;
        let (start, mut salt) = (Instant::now(), 0);
        let mut round = async || {
            let before = calls();
            for answer in ask_for(&client, salt..salt + 24, FEW).await {
                assert_eq!(answer.text, "a".repeat(FEW as usize));
            }
            salt += 24;
            sleep(Duration::from_millis(200)).await;
            calls() - before
        };
        while round().await > 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "{pauses:?}: a replica is not left");
        }
        // A probe that is still slow does not let a replica return: the next one follows after ten seconds.
        let (left, mut further) = (Instant::now(), 0);
        while left.elapsed() < Duration::from_secs(12) {
            further += round().await;
        }
        assert!(further <= slow.len(), "{pauses:?}: {further} further calls");
    }
}
