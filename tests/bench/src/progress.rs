//! Progress, printed apart from the results.

/// Prints the current measurement to stderr.
pub(crate) fn progress(what: &str) {
    eprintln!("  {what}");
}
