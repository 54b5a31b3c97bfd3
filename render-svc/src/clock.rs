//! The time in templates, from the request.

use tandem_template::LocalTime;

use crate::conversation::Invalid;

/// Parses a time such as `2025-07-04T09:05:03`.
///
/// # Errors
/// The text does not have this form. The error names the field `render_time`.
pub fn parse(text: &str) -> Result<LocalTime, Invalid> {
    LocalTime::parse(text).ok_or_else(|| Invalid::new("render_time", "must be a time such as 2025-07-04T09:05:03"))
}
