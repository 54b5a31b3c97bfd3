//! Replicas whose refusals another one does not confirm.

use std::collections::HashMap;
use std::time::Duration;

use tandem_common::pb::generate::v1::FinishReason;
use tandem_tests::fakes::replica::{Replica, accepted, at_once, ended, not_yet_generated, part};
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
        let refusing = Replica::playing(Err(status.clone()));
        assert!(is_ejected_after_five_calls(&refusing, &honest()).await || !is_ejected, "{status:?}");
    }
}

/// Asks until a replica has five calls. Each answer is good. Returns true if it then gets no call for a while, or if
/// that is not known.
async fn is_ejected_after_five_calls(refusing: &Replica, honest: &Replica) -> bool {
    let addresses = [refusing.serve().await, honest.serve().await];
    let (_service, client) = front_of(default_catalog(), &addresses.each_ref().map(String::as_str)).await;
    let mut number = 0;
    while refusing.calls() < 5 {
        let answer = ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect("an answer");
        assert_eq!(answer.text, "good");
        number += 1;
        assert!(number < 2_000, "the replica has {} calls", refusing.calls());
    }
    let ejected = Instant::now();
    for number in 0..16 {
        ask(client.clone(), salted(number), watch::Sender::new(0)).await.expect("an answer");
    }
    refusing.calls() == 5 || ejected.elapsed() >= Duration::from_secs(4)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_after_the_acceptance_is_the_replicas_fault_if_another_one_continues_the_task() {
    for (code, reason) in DOUBTFUL {
        for output in [vec![], vec![part("go", &[7]), part("od", &[8])]] {
            let refusing = Replica::of([vec![accepted()], output.clone()].concat());
            let refusing = refusing.with_end(refusal(code, reason, None));
            // It repeats the last token of a resumed output.
            let rest =
                if output.is_empty() { vec![part("good", &[7])] } else { vec![part("go", &[7]), part("od", &[8])] };
            let honest = Replica::new(move |request, _| {
                let events = [vec![accepted()], rest.clone(), ended(FinishReason::Length)].concat();
                Ok(not_yet_generated(request.get_ref(), at_once(events)))
            });
            assert!(is_ejected_after_five_calls(&refusing, &honest).await, "{reason}");
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
