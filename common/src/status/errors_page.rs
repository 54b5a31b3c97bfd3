//! The page of all error reasons, `proto/ERRORS.md`.

use std::fmt::Write as _;

use super::code::code_name;
use super::reason::{Reason, RetryClass};

const HEAD: &str = "\
# Error reasons

<!-- Generated from common/src/status/reason.rs by `cargo xtask errors`. -->

Every failure is a gRPC status with `google.rpc` details:

- `ErrorInfo`, always: its domain is `tandem`, its reason one of the table. Reasons are stable; programs should compare them.
- `BadRequest`, if a request field is at fault: the path of the field, such as `conversation.messages[2].role`.
- `RetryInfo`, if the retry class is *later*: the delay before the next attempt.
- `ResourceInfo`, if a model, an adapter or a template does not exist: its name.

The retry class is the caller's remedy:

| retry class | meaning |
|---|---|
| never | Do not retry: the same request is expected to fail again, at every replica. |
| later | Retry after `RetryInfo.retry_delay`, or at another replica without delay. |
| other replica | Retry at another replica: this one answers no request until it is restarted. |

Reasons that begin with \"At start\" are not sent to callers: gen-svc prints them when it cannot serve its model, and exits.

| reason | code | retry | meaning |
|---|---|---|---|
";

/// Returns the page, as Markdown.
#[must_use]
pub fn errors_page() -> String {
    Reason::ALL.iter().fold(HEAD.to_owned(), |page, reason| page + &row(*reason))
}

fn row(reason: Reason) -> String {
    let code = match reason {
        Reason::GenerationFailed | Reason::Transport => "any",
        _ => code_name(reason.code()),
    };
    let retry = match reason.retry_class() {
        RetryClass::Never => "never",
        RetryClass::Later => "later",
        RetryClass::OtherReplica => "other replica",
    };
    let mut row = String::new();
    let _ = writeln!(row, "| `{}` | {code} | {retry} | {} |", reason.name(), reason.meaning());
    row
}
