//! The page of all error reasons, `proto/ERRORS.md`.

use super::code::code_name;
use super::reason::{Reason, RetryClass};

const HEAD: &str = "\
# Error reasons

For authors of clients.

<!-- Generated from common/src/status/reason.rs by `cargo xtask errors`. -->

Every failure is a gRPC status with `google.rpc` details:

- `ErrorInfo`, always: its domain is `tandem`, its reason one of the table. Reasons are stable; programs should compare them.
- `BadRequest`, if a request field is at fault: the path of the field, such as `conversation.messages[2].role`.
- `RetryInfo`, if the retry class is *later*: the delay before the next attempt.
- `ResourceInfo`, if a model, an adapter or a template does not exist: its name.
";
const RETRY_HEAD: &str = "
The retry class is the caller's remedy:

| retry class | remedy |
|---|---|
";
const TABLE_HEAD: &str = "
| reason | code | retry | meaning |
|---|---|---|---|
";

const START_HEAD: &str = "
## At start

No call fails with these reasons. gen-svc prints them when it cannot serve its model, and exits. THREAD_FAILED
can also end a start.

| reason | meaning |
|---|---|
";

/// Returns the page, as Markdown.
#[must_use]
pub fn errors_page() -> String {
    let classes = RetryClass::ALL.iter().map(|class| format!("| {} | {} |\n", class.name(), class.remedy()));
    let (at_start, of_calls): (Vec<Reason>, Vec<_>) = Reason::ALL.iter().partition(|reason| reason.is_at_start());
    let parts = [HEAD.to_owned(), of_any_method(), RETRY_HEAD.to_owned()].into_iter().chain(classes);
    let parts = parts.chain([TABLE_HEAD.to_owned()]).chain(of_calls.into_iter().map(row));
    parts.chain([START_HEAD.to_owned()]).chain(at_start.into_iter().map(start_row)).collect()
}

fn of_any_method() -> String {
    let reasons = Reason::ALL.iter().filter(|reason| reason.is_of_any_method());
    let names: Vec<_> = reasons.map(|reason| format!("`{}`", reason.name())).collect();
    format!("\nAny method can fail with {}. The comment of a method lists its own.\n", names.join(", "))
}

fn start_row(reason: Reason) -> String {
    format!("| `{}` | {} |\n", reason.name(), reason.meaning())
}

fn row(reason: Reason) -> String {
    let code = match reason {
        Reason::GenerationFailed | Reason::Transport => "any",
        _ => code_name(reason.code()),
    };
    let retry = reason.retry_class().name();
    format!("| `{}` | {code} | {retry} | {} |\n", reason.name(), reason.meaning())
}
