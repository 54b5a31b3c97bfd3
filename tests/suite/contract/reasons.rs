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

/// The alternatives of each label matcher of a text, such as `error_type=~"A|B"`.
fn matched_reasons(text: &str) -> Vec<HashSet<&str>> {
    let matchers = text.split("error_type").skip(1).filter_map(|after| {
        let after = after.strip_prefix("=~").or_else(|| after.strip_prefix("!~"))?;
        let after = after.strip_prefix("\\\"").or_else(|| after.strip_prefix('"'))?;
        Some(after.split(['"', '\\']).next().unwrap_or_default())
    });
    matchers.map(|alternatives| alternatives.split('|').collect()).collect()
}

#[test]
fn alerts_and_dashboard_match_the_table_of_reasons() {
    let names = |is_wanted: fn(Reason) -> bool| -> HashSet<&str> {
        Reason::ALL.iter().filter(|reason| is_wanted(**reason)).map(|reason| reason.name()).collect()
    };
    let faults = names(Reason::is_fault);
    // These have the status of an overload, but a retry does not help.
    let too_large =
        names(|reason| reason.code() == Code::ResourceExhausted && reason.retry_class() == RetryClass::Never);
    for file in ["alerts.yaml", "dashboard.json"] {
        let text = std::fs::read_to_string(repository().join("deploy/monitoring").join(file)).expect("a file");
        let found = matched_reasons(&text);
        assert!(found.contains(&faults) && found.contains(&too_large), "{file}: {found:?}");
        let others: Vec<_> = found.iter().filter(|names| **names != faults && **names != too_large).collect();
        assert!(others.is_empty(), "{file}: {others:?}");
    }
}

#[test]
fn runbook_has_a_row_for_each_alert() {
    let read = |file: &str| std::fs::read_to_string(repository().join("deploy").join(file)).expect("a file");
    let (alerts, runbook) = (read("monitoring/alerts.yaml"), read("README.md"));
    let alerts: Vec<_> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!alerts.is_empty());
    let missing: Vec<_> = alerts.iter().filter(|alert| !runbook.contains(&format!("\n| {alert} | "))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn retryable_reasons_have_the_expected_retry_class() {
    let of = |class| Reason::ALL.iter().copied().filter(|reason| reason.retry_class() == class).collect::<Vec<_>>();
    let later = [
        Reason::Overloaded,
        Reason::TotalMessageBytes,
        Reason::QueueFull,
        Reason::GrammarQueueFull,
        Reason::Loading,
        Reason::Draining,
        Reason::GenerationUnavailable,
        Reason::ResumeUnsupported,
        Reason::EngineUnavailable,
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
