//! Progress, printed apart from the results.

/// Prints what is measured now to stderr.
pub(crate) fn progress(what: &str) {
    eprintln!("  {what}");
}
