//! The table of reasons that clients read equals the services' own table.

use std::collections::HashSet;

use tandem_common::status::{Reason, RetryClass, UnknownReason, errors_page};
use tandem_tests::repository;
use tonic::Code;

#[test]
fn errors_page_matches_the_reason_table() {
    let found = std::fs::read_to_string(repository().join("proto/ERRORS.md")).expect("proto/ERRORS.md is readable");
    assert!(found == errors_page(), "proto/ERRORS.md is out of date: run `cargo xtask errors`");
}

#[test]
fn a_reason_is_found_by_its_name() {
    for reason in Reason::ALL {
        assert_eq!(Reason::from_name(reason.name()), Some(*reason));
        assert_eq!(reason.name().parse(), Ok(*reason));
    }
    assert_eq!(Reason::from_name("queue_full"), None);
    assert_eq!("".parse::<Reason>(), Err(UnknownReason));
}

#[test]
fn retryable_reasons_have_the_expected_retry_class() {
    let of = |class| Reason::ALL.iter().copied().filter(|reason| reason.retry_class() == class).collect::<Vec<_>>();
    let later = [
        Reason::Overloaded,
        Reason::QueueFull,
        Reason::GrammarQueueFull,
        Reason::Loading,
        Reason::Draining,
        Reason::GenerationUnavailable,
    ];
    assert_eq!(of(RetryClass::Later), later);
    assert_eq!(of(RetryClass::OtherReplica), [Reason::EngineFailed]);
    let delayed: Vec<Reason> = Reason::ALL.iter().copied().filter(|reason| reason.retry_delay().is_some()).collect();
    assert_eq!(delayed, later, "a delay is stated for the class `later` only");
}

#[test]
fn reason_names_are_unique_upper_snake_case() {
    let is_upper_snake = |name: &str| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    let names: HashSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    assert!(names.iter().all(|name| is_upper_snake(name)));
}

#[test]
fn limit_and_deadline_reasons_have_distinct_status_codes() {
    let exhausted = [Reason::Overloaded, Reason::QueueFull, Reason::MessageTooLarge];
    assert!(exhausted.iter().all(|reason| reason.code() == Code::ResourceExhausted));
    let late = [Reason::DeadlineExceeded, Reason::DeadlineInQueue, Reason::RequestTooSlow];
    assert!(late.iter().all(|reason| reason.code() == Code::DeadlineExceeded));
}
