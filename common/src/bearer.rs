//! Files of bearer tokens: those that are let in, and those to be sent.

use std::time::SystemTime;

use jiff::Timestamp;

use crate::reload::Cause;

/// One line of a file.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) token: &'a str,
    /// None: it does not expire.
    pub(crate) until: Option<SystemTime>,
}

/// One token per line, and behind it, if it expires, when: `2027-01-31T00:00:00Z`. Empty lines, and lines that start with `#`, do not
/// count.
pub(crate) fn lines(content: &[u8]) -> Result<Vec<Line<'_>>, Cause> {
    let mut lines = Vec::new();
    for (number, line) in std::str::from_utf8(content)?.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(token) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let until = words.next().map(|time| time.parse::<Timestamp>().map(SystemTime::from)).transpose();
        let until = until.map_err(|error| format!("line {}: when the token expires: {error}", number + 1))?;
        if words.next().is_some() {
            return Err(format!("line {}: more than a token and a time", number + 1).into());
        }
        lines.push(Line { token, until });
    }
    Ok(lines)
}

/// Whether it still counts.
pub(crate) fn counts(until: Option<SystemTime>) -> bool {
    until.is_none_or(|until| SystemTime::now() < until)
}
