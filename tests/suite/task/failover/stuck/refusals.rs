//! Replicas whose refusals another one does not confirm.

use std::collections::HashMap;
use std::time::Duration;

use tandem_tests::fakes::replica::Replica;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::super::ask;
use super::{default_catalog, front_of, honest, salted};

fn refusal(code: Code, reason: &str, retry: Option<Duration>) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, "tandem", HashMap::new());
    if reason == "INVALID_REQUEST" {
        details.add_bad_request_violation("stop.max_new_tokens", "must be at least 1");
    }
    if let Some(retry) = retry {
        details.set_retry_info(Some(retry));
    }
    Status::with_error_details(code, "refused", details)
}

/// The refusals that one other replica has to confirm.
const DOUBTFUL: [(Code, &str); 6] = [
    (Code::Internal, "INTERNAL"),
    (Code::Internal, "MODEL_FAILED"),
    (Code::InvalidArgument, "INVALID_REQUEST"),
    (Code::InvalidArgument, "PROMPT_TOO_LONG"),
    (Code::ResourceExhausted, "MESSAGE_TOO_LARGE"),
    (Code::FailedPrecondition, "REASON_OF_A_LATER_VERSION"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_another_replica_does_not_confirm_is_the_replicas_fault() {
    let temporary = [
        refusal(Code::Unavailable, "REASON_OF_A_LATER_VERSION", None),
        refusal(Code::ResourceExhausted, "REASON_OF_A_LATER_VERSION", Some(Duration::from_secs(1))),
    ];
    let doubtful = DOUBTFUL.map(|(code, reason)| refusal(code, reason, None));
    for (status, is_ejected) in temporary.map(|status| (status, false)).into_iter().chain(doubtful.map(|s| (s, true))) {
        let (refusing, honest) = (Replica::playing(Err(status.clone())), honest());
        let addresses = [refusing.serve().await, honest.serve().await];
        let (_service, client) = front_of(default_catalog(), &addresses.each_ref().map(String::as_str)).await;
        let mut number = 0;
        while refusing.calls() < 5 {
            let answer = ask(client.clone(), salted(number), watch::Sender::new(0)).await;
            assert_eq!(answer.unwrap_or_else(|error| panic!("{status:?}: {error}")).text, "good");
            number += 1;
            assert!(number < 2_000, "{status:?}: the replica has {} calls", refusing.calls());
        }
        let ejected = Instant::now();
        for number in 0..16 {
            ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect("an answer");
        }
        if is_ejected && ejected.elapsed() < Duration::from_secs(4) {
            assert_eq!(refusing.calls(), 5, "{status:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_another_replica_confirms_is_the_callers_fault() {
    for (code, reason) in DOUBTFUL {
        let status = refusal(code, reason, None);
        let replicas = [(); 3].map(|()| Replica::playing(Err(status.clone())));
        let mut addresses = Vec::new();
        for replica in &replicas {
            addresses.push(replica.serve().await);
        }
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        let (_service, client) = front_of(default_catalog(), &addresses).await;
        let before: usize = replicas.iter().map(Replica::calls).sum();
        let error = ask(client.clone(), salted(0), watch::Sender::new(0)).await.expect_err("a refusal");
        assert_eq!(error.code(), code, "{reason}");
        let calls = replicas.iter().map(Replica::calls).sum::<usize>() - before;
        assert_eq!(calls, 2, "{reason}: one other replica is asked");

        let (_service, client) = front_of(default_catalog(), &addresses[..1]).await;
        let error = ask(client, salted(0), watch::Sender::new(0)).await.expect_err("a refusal");
        assert_eq!(error.code(), code, "{reason}: there is no other replica");
    }
}
