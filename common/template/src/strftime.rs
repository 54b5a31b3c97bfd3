//! `strftime` as CPython 3.11 has it on Linux: `datetime` of a time without a zone, on glibc, in the
//! C locale.

use std::borrow::Cow;

use crate::budget;
use crate::clock::{self, LocalTime};
use crate::error::{Error, Fallible};

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Formats the time of the render.
///
/// # Errors
/// The budget has no room for the text.
pub(crate) fn strftime(text: &str) -> Fallible<String> {
    format(&clock::current(), text)
}

/// Formats a time. A text that is too long for CPython's buffer is empty, as in CPython.
///
/// # Errors
/// The budget has no room for the text.
fn format(now: &LocalTime, format: &str) -> Fallible<String> {
    // In C, a text ends at the first null character.
    let format = of_datetime(now, format.split('\0').next().unwrap_or_default());
    let mut out = Out { text: String::new(), left: capacity(format.chars().count()) };
    match out.format(now, &format) {
        Ok(()) => Ok(out.text),
        Err(Stop::Full) => Ok(String::new()),
        Err(Stop::Budget(error)) => Err(error),
    }
}

/// Replaces the directives that `datetime` formats itself. These have no flags and no widths.
fn of_datetime<'a>(now: &LocalTime, format: &'a str) -> Cow<'a, str> {
    if !["%f", "%z", "%Z"].iter().any(|directive| format.contains(directive)) {
        return Cow::Borrowed(format);
    }
    let mut out = String::with_capacity(format.len());
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        match (char, chars.clone().next()) {
            ('%', Some('f')) => out.push_str(&format!("{:06}", now.microsecond)),
            ('%', Some('z' | 'Z')) => {}
            ('%', Some(other)) => out.extend([char, other]),
            _ => {
                out.push(char);
                continue;
            }
        }
        chars.next();
    }
    Cow::Owned(out)
}

/// Returns the characters of CPython's last buffer, one of them for the end. It doubles its buffer from
/// 1024 characters until it has 256 times those of the format.
fn capacity(format: usize) -> usize {
    1024.max(format.saturating_mul(256)).checked_next_power_of_two().unwrap_or(usize::MAX)
}

/// Why a text ends.
enum Stop {
    /// It is too long.
    Full,
    Budget(Error),
}

/// The text and the characters that CPython's buffer has left.
struct Out {
    text: String,
    left: usize,
}

/// A directive, such as `%-d` or `%010EY`.
#[derive(Default)]
struct Directive<'a> {
    /// The last of the flags `_`, `-` and `0`.
    padding: Option<char>,
    /// The flag `^`.
    upper: bool,
    /// The flag `#`.
    other_case: bool,
    width: usize,
    /// `E` or `O`.
    modifier: Option<char>,
    /// None at the end of the format.
    code: Option<char>,
    /// Its text, which an unknown directive prints.
    text: &'a str,
}

/// The case of letters.
#[derive(Clone, Copy)]
enum Case {
    Same,
    Upper,
    Lower,
}

impl<'a> Directive<'a> {
    /// Reads the directive at the start of a text.
    fn read(text: &'a str) -> Self {
        let mut directive = Self::default();
        let mut rest = text[1..].chars();
        let mut next = rest.next();
        while let Some(flag) = next.filter(|char| "_-0^#".contains(*char)) {
            match flag {
                '^' => directive.upper = true,
                '#' => directive.other_case = true,
                _ => directive.padding = Some(flag),
            }
            next = rest.next();
        }
        while let Some(digit) = next.and_then(|char| char.to_digit(10)) {
            // glibc's widths are integers of 32 bits.
            directive.width = (directive.width * 10 + digit as usize).min(i32::MAX as usize);
            next = rest.next();
        }
        if let Some('E' | 'O') = next {
            directive.modifier = next;
            next = rest.next();
        }
        directive.code = next;
        directive.text = &text[..text.len() - rest.as_str().len()];
        directive
    }

    /// Returns true if the directive with its modifier exists in glibc.
    fn is_known(&self, code: char) -> bool {
        match self.modifier {
            None => true,
            Some('E') => "CYycxXnpPRrTtusZz".contains(code),
            Some(_) => !"aAcxXDFY%".contains(code),
        }
    }

    fn case(&self) -> Case {
        if self.upper { Case::Upper } else { Case::Same }
    }
}

impl Out {
    fn format(&mut self, now: &LocalTime, format: &str) -> Result<(), Stop> {
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            self.add(&rest[..at], 0, None, Case::Same)?;
            let directive = Directive::read(&rest[at..]);
            rest = &rest[at + directive.text.len()..];
            self.directive(now, &directive)?;
        }
        self.add(rest, 0, None, Case::Same)
    }

    /// Adds a text, with padding before it.
    fn add(&mut self, text: &str, width: usize, padding: Option<char>, case: Case) -> Result<(), Stop> {
        let chars = text.chars().count();
        let (padding, missing) = (padding.filter(|flag| *flag == '0').unwrap_or(' '), width.saturating_sub(chars));
        self.left = self.left.checked_sub(missing + chars).filter(|left| *left > 0).ok_or(Stop::Full)?;
        budget::alloc(missing + text.len()).map_err(Stop::Budget)?;
        self.text.extend(std::iter::repeat_n(padding, missing));
        match case {
            Case::Same => self.text.push_str(text),
            Case::Upper => self.text.extend(text.chars().map(upper)),
            Case::Lower => self.text.push_str(&text.to_lowercase()),
        }
        Ok(())
    }

    fn directive(&mut self, now: &LocalTime, directive: &Directive<'_>) -> Result<(), Stop> {
        let &Directive { padding, other_case, width, .. } = directive;
        let case = directive.case();
        let Some(code) = directive.code.filter(|code| directive.is_known(*code)) else {
            return self.unknown(directive);
        };
        if let Some((number, digits)) = number(now, code) {
            return self.number(number, digits, directive);
        }
        if let Some(format) = format_of(code) {
            let mut inner = Self { text: String::new(), left: usize::MAX };
            inner.format(now, format)?;
            return self.add(&inner.text, width, padding, case);
        }
        let (weekday, month) = (WEEKDAYS[now.weekday() as usize], MONTHS[usize::from(now.month) - 1]);
        let name = if other_case { Case::Upper } else { case };
        match code {
            'A' => self.add(weekday, width, padding, name),
            'a' => self.add(&weekday[..3], width, padding, name),
            'B' => self.add(month, width, padding, name),
            'b' | 'h' => self.add(&month[..3], width, padding, name),
            'P' => self.add(half_of_day(now), width, padding, Case::Lower),
            'p' => self.add(half_of_day(now), width, padding, if other_case { Case::Lower } else { case }),
            's' => self.add(&now.unix().to_string(), width, padding, case),
            'n' => self.add("\n", width, padding, case),
            't' => self.add("\t", width, padding, case),
            '%' => self.add("%", width, padding, case),
            'Z' => self.add("", width, padding, case),
            'z' => Ok(()),
            _ => self.unknown(directive),
        }
    }

    /// Adds the text of a directive that does not exist in glibc, from its last percent sign.
    fn unknown(&mut self, directive: &Directive<'_>) -> Result<(), Stop> {
        let text = if directive.code == Some('%') { "%" } else { directive.text };
        // glibc changes the case of a month before it refuses the modifier.
        let is_month = directive.code.is_some_and(|code| "bhB".contains(code));
        let case = if directive.other_case && is_month { Case::Upper } else { directive.case() };
        self.add(text, directive.width, directive.padding, case)
    }

    /// Adds a number of at least `digits` digits.
    fn number(&mut self, number: i64, digits: usize, directive: &Directive<'_>) -> Result<(), Stop> {
        let &Directive { padding, width, code, .. } = directive;
        let is_spaced = code.is_some_and(|code| "ekl".contains(code)) && !matches!(padding, Some('0' | '-'));
        match padding {
            Some('-') => self.add(&number.to_string(), width, padding, Case::Same),
            Some('_') => self.add(&number.to_string(), width.max(digits), padding, Case::Same),
            _ if is_spaced => self.add(&number.to_string(), width.max(digits), None, Case::Same),
            _ => self.add(&number.to_string(), width.max(digits), Some('0'), Case::Same),
        }
    }
}

/// Returns the upper case of a character. C converts each to one other.
fn upper(char: char) -> char {
    let mut upper = char.to_uppercase();
    upper.next().filter(|_| upper.next().is_none()).unwrap_or(char)
}

fn half_of_day(now: &LocalTime) -> &'static str {
    if now.hour < 12 { "AM" } else { "PM" }
}

/// Returns the format that a directive abbreviates.
fn format_of(code: char) -> Option<&'static str> {
    Some(match code {
        'c' => "%a %b %e %H:%M:%S %Y",
        'D' | 'x' => "%m/%d/%y",
        'F' => "%Y-%m-%d",
        'T' | 'X' => "%H:%M:%S",
        'R' => "%H:%M",
        'r' => "%I:%M:%S %p",
        _ => return None,
    })
}

/// Returns the value and the digits of a directive that is one number. None for other directives.
fn number(now: &LocalTime, code: char) -> Option<(i64, usize)> {
    let hour12 = (i64::from(now.hour) + 11) % 12 + 1;
    let year = i64::from(now.year);
    Some(match code {
        'Y' => (year, 1),
        'C' => (year.div_euclid(100), 1),
        'y' => (year.rem_euclid(100), 2),
        'm' => (now.month.into(), 2),
        'd' | 'e' => (now.day.into(), 2),
        'H' | 'k' => (now.hour.into(), 2),
        'I' | 'l' => (hour12, 2),
        'M' => (now.minute.into(), 2),
        'S' => (now.second.into(), 2),
        'j' => (now.day_of_year() + 1, 3),
        'w' => (now.weekday(), 1),
        'u' => ((now.weekday() + 6) % 7 + 1, 1),
        'U' => ((now.day_of_year() + 7 - now.weekday()) / 7, 2),
        'W' => ((now.day_of_year() + 7 - (now.weekday() + 6) % 7) / 7, 2),
        'V' => (now.iso_week().1, 2),
        'G' => (now.iso_week().0, 1),
        'g' => (now.iso_week().0.rem_euclid(100), 2),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::budget::Meter;
    use crate::clock::{LocalTime, set};
    use crate::limits::Limits;

    const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };

    fn strftime(format: &str) -> String {
        let _meter = Meter::start(&Limits::default());
        super::strftime(format).expect("room for the text")
    }

    #[test]
    fn strftime_directives_match_python() {
        set(NOW);
        assert_eq!(strftime("%A %d %b %Y %H:%M:%S"), "Friday 04 Jul 2025 09:05:03");
        assert_eq!(strftime("%j %U %W %V %G %u %w %p %I %y %%"), "185 26 26 27 2025 5 5 AM 09 25 %");
        assert_eq!(strftime("%e|%-d|%_d|%^a"), " 4|4| 4|FRI");
    }

    #[test]
    fn weeks_match_python() {
        for ((year, month, day), expected) in [
            ((2020, 2, 29), "Sat 2020-09 6 08 08"),
            ((2021, 1, 3), "Sun 2020-53 7 01 00"),
            ((2024, 12, 30), "Mon 2025-01 1 52 53"),
            ((2026, 1, 3), "Sat 2026-01 6 00 00"),
            ((2027, 1, 1), "Fri 2026-53 5 00 00"),
        ] {
            set(LocalTime { year, month, day, ..NOW });
            assert_eq!(strftime("%a %G-%V %u %U %W"), expected);
        }
    }
}
