//! The time that templates see: the request's, or the service's clock in UTC.

use jiff::Timestamp;
use jiff::civil::DateTime;
use tandem_template::LocalTime;

use crate::conversation::Invalid;

/// The service's clock, in UTC.
#[must_use]
pub fn now() -> LocalTime {
    let now = Timestamp::now();
    LocalTime::from_unix(now.as_second(), u32::try_from(now.subsec_microsecond()).unwrap_or(0))
}

/// Reads `2025-07-04T09:05:03`.
///
/// # Errors
/// It is no such time; the field is `render_time`.
pub fn parse(text: &str) -> Result<LocalTime, Invalid> {
    let invalid = || Invalid::new("render_time", "must be a time such as 2025-07-04T09:05:03");
    // The parser takes more: other calendars' years, and time zones, which it leaves out.
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
