//! The page of all error reasons, `proto/ERRORS.md`.

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

Reasons that begin with \"At start\" are not sent to callers: gen-svc prints them when it cannot serve its model, and exits.
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

/// Returns the page, as Markdown.
#[must_use]
pub fn errors_page() -> String {
    let classes = RetryClass::ALL.iter().map(|class| format!("| {} | {} |\n", class.name(), class.remedy()));
    let rows = Reason::ALL.iter().map(|reason| row(*reason));
    let parts = [HEAD.to_owned(), of_any_method(), RETRY_HEAD.to_owned()].into_iter().chain(classes);
    parts.chain([TABLE_HEAD.to_owned()]).chain(rows).collect()
}

fn of_any_method() -> String {
    let reasons = Reason::ALL.iter().filter(|reason| reason.is_of_any_method());
    let names: Vec<_> = reasons.map(|reason| format!("`{}`", reason.name())).collect();
    format!("\nAny method can fail with {}. The comment of a method lists its own.\n", names.join(", "))
}

fn row(reason: Reason) -> String {
    let code = match reason {
        Reason::GenerationFailed | Reason::Transport => "any",
        _ => code_name(reason.code()),
    };
    let retry = reason.retry_class().name();
    format!("| `{}` | {code} | {retry} | {} |\n", reason.name(), reason.meaning())
}
