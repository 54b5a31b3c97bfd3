//! The table of reasons that clients read is the one that the services are made of.

use std::collections::HashSet;
use std::fmt::Write as _;

use tandem_common::status::{Reason, code_name};
use tandem_tests::repository;
use tonic::Code;

const HEAD: &str = "\
# Why requests fail

Every failure is a gRPC status with `google.rpc` details: always one `ErrorInfo` with domain `tandem` and one of these reasons, which are
stable and what programs should test; for a field of the request, `BadRequest` with its path; where coming again may help, `RetryInfo`;
for what is not there, `ResourceInfo`. A gen-svc whose model cannot be served says one of them and ends.

| reason | code | meaning |
|---|---|---|
";

fn document() -> String {
    Reason::ALL.iter().fold(HEAD.to_owned(), |mut text, reason| {
        let code = match reason {
            Reason::GenerationFailed | Reason::Transport => "any",
            _ => code_name(reason.code()),
        };
        writeln!(text, "| `{}` | {code} | {} |", reason.name(), reason.meaning()).expect("memory");
        text
    })
}

#[test]
fn the_documented_reasons_are_those_of_the_services() {
    let file = repository().join("proto/ERRORS.md");
    if std::env::var_os("TANDEM_WRITE_ERRORS").is_some() {
        std::fs::write(&file, document()).expect("a file");
    }
    let found = std::fs::read_to_string(&file).expect("a file");
    assert!(found == document(), "proto/ERRORS.md is out of date: run this test with TANDEM_WRITE_ERRORS=1");
}

#[test]
fn reasons_are_upper_snake_and_each_is_there_once() {
    let is_upper_snake = |name: &str| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    let names: HashSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    assert!(names.iter().all(|name| is_upper_snake(name)));
}

#[test]
fn too_much_too_large_and_too_late_are_told_apart() {
    let exhausted = [Reason::Overloaded, Reason::QueueFull, Reason::MessageTooLarge];
    assert!(exhausted.iter().all(|reason| reason.code() == Code::ResourceExhausted));
    let late = [Reason::DeadlineExceeded, Reason::DeadlineInQueue, Reason::RequestTooSlow];
    assert!(late.iter().all(|reason| reason.code() == Code::DeadlineExceeded));
}
