//! The current time in templates: from the request, or from the service's clock in UTC.

use jiff::Timestamp;
use jiff::civil::DateTime;
use tandem_template::LocalTime;

use crate::conversation::Invalid;

/// Returns the time of the service's clock, in UTC.
#[must_use]
pub fn now() -> LocalTime {
    let now = Timestamp::now();
    LocalTime::from_unix(now.as_second(), u32::try_from(now.subsec_microsecond()).unwrap_or(0))
}

/// Parses a time such as `2025-07-04T09:05:03`.
///
/// # Errors
/// The text does not have this form. The error names the field `render_time`.
pub fn parse(text: &str) -> Result<LocalTime, Invalid> {
    let invalid = || Invalid::new("render_time", "must be a time such as 2025-07-04T09:05:03");
    // The parser also accepts years of other calendars, and time zones, which it ignores.
    let is_plain = text.len() <= 26 && text.bytes().all(|byte| byte.is_ascii_digit() || b"-T:.".contains(&byte));
    let time: DateTime = Some(text).filter(|_| is_plain).and_then(|text| text.parse().ok()).ok_or_else(invalid)?;
    Some(time).filter(|time| time.year() > 0).and_then(local).ok_or_else(invalid)
}

fn local(time: DateTime) -> Option<LocalTime> {
    Some(LocalTime {
        year: time.year().into(),
        month: time.month().try_into().ok()?,
        day: time.day().try_into().ok()?,
        hour: time.hour().try_into().ok()?,
        minute: time.minute().try_into().ok()?,
        second: time.second().try_into().ok()?,
        microsecond: u32::try_from(time.subsec_nanosecond() / 1000).ok()?,
    })
}
