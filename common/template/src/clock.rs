//! The time of the render.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// A date and time of day without a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// The year, such as 2025.
    pub year: i32,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
    /// 0 to 999,999.
    pub microsecond: u32,
}

impl LocalTime {
    /// The start of the epoch, 1970-01-01 00:00:00.
    pub const EPOCH: Self = Self { year: 1970, month: 1, day: 1, hour: 0, minute: 0, second: 0, microsecond: 0 };

    /// Returns the time `seconds` after [`Self::EPOCH`]. `seconds` must include the offset of the
    /// time zone.
    pub fn from_unix(seconds: i64, microsecond: u32) -> Self {
        let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil_from_days(days);
        let part = |unit: i64, modulus: i64| u8::try_from(rest / unit % modulus).unwrap_or(0);
        Self { year, month, day, hour: part(3600, 24), minute: part(60, 60), second: part(1, 60), microsecond }
    }

    /// Returns the time of the system's clock, in UTC.
    #[must_use]
    pub fn now() -> Self {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_unix(i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX), elapsed.subsec_micros())
    }

    /// Parses a time such as `2025-07-04T09:05:03`, with or without a fraction of the second, as
    /// [`Display`](std::fmt::Display) writes it. Returns None for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let (date, time) = whole.split_once('T')?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2; 3])?;
        let is_valid = (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        let [microsecond] = numbers(&format!("{fraction:0<6}"), '.', [6]).filter(|_| !fraction.is_empty())?;
        let byte = |number: u32| u8::try_from(number).ok();
        let time = Self {
            year: i32::try_from(year).ok()?,
            month: byte(month)?,
            day: byte(day)?,
            hour: byte(hour).filter(|hour| *hour < 24)?,
            minute: byte(minute).filter(|minute| *minute < 60)?,
            second: byte(second).filter(|second| *second < 60)?,
            microsecond,
        };
        let (_, _, last_valid) = civil_from_days(time.days());
        Some(time).filter(|_| is_valid && last_valid == time.day)
    }

    /// Returns the number of days since the epoch.
    pub(crate) fn days(&self) -> i64 {
        days_from_civil(self.year, self.month, self.day)
    }

    /// Returns the day of the week, from 0 for Sunday to 6 for Saturday.
    pub(crate) fn weekday(&self) -> i64 {
        (self.days() + 4).rem_euclid(7)
    }

    /// Returns the day of the year, from 0 for the first of January.
    pub(crate) fn day_of_year(&self) -> i64 {
        self.days() - days_from_civil(self.year, 1, 1)
    }
}

impl std::fmt::Display for LocalTime {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { year, month, day, hour, minute, second, microsecond } = self;
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{microsecond:06}")
    }
}

/// Reads whole numbers between separators.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[u32; N]> {
    let parts: [&str; N] = text.split(separator).collect::<Vec<_>>().try_into().ok()?;
    let is_number =
        |(part, digits): (&&str, usize)| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
    let are_numbers = parts.iter().zip(digits).all(is_number);
    are_numbers.then(|| parts.map(|part| part.parse().unwrap_or(0)))
}

// One function of few templates needs the time. As a parameter, it would be part of every function call.
thread_local! {
    static NOW: Cell<LocalTime> = const { Cell::new(LocalTime::EPOCH) };
}

/// Sets the time of this render.
pub(crate) fn set(now: LocalTime) {
    NOW.set(now);
}

/// Returns the number of days from the epoch to a date, counted in years that start in March.
fn days_from_civil(year: i32, month: u8, day: u8) -> i64 {
    let shifted = i64::from(year) - i64::from(month <= 2);
    let (era, year_of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let month_from_march = (i64::from(month) + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i32, u8, u8) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (i32::try_from(year).unwrap_or(i32::MAX), u8::try_from(month).unwrap_or(1), u8::try_from(day).unwrap_or(1))
}

/// Returns the time of this render.
pub(crate) fn current() -> LocalTime {
    NOW.get()
}

impl LocalTime {
    /// Returns the year and number of the ISO week. The week belongs to the year of its Thursday.
    pub(crate) fn iso_week(&self) -> (i64, i64) {
        let thursday = self.days() - (self.weekday() + 6) % 7 + 3;
        let (year, ..) = civil_from_days(thursday);
        (year.into(), (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
    }

    /// Returns the seconds since the epoch.
    pub(crate) fn unix(&self) -> i64 {
        let seconds = i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second);
        self.days() * 86_400 + seconds
    }
}

#[cfg(test)]
mod tests {
    use super::LocalTime;

    const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };

    #[test]
    fn unix_seconds_convert_to_dates() {
        assert_eq!(LocalTime::from_unix(0, 0), LocalTime::EPOCH);
        assert_eq!(LocalTime::from_unix(1_751_619_903, 0), NOW);
        let before = LocalTime::from_unix(-1, 0);
        assert_eq!((before.year, before.month, before.day, before.second), (1969, 12, 31, 59));
    }
}
