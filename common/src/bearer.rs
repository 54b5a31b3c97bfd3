//! Files of bearer tokens, for servers that accept them and clients that send them.

use std::time::SystemTime;

use jiff::Timestamp;

use crate::reload::Cause;

/// One line of a token file.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) token: &'a str,
    /// None for a token that does not expire.
    pub(crate) until: Option<SystemTime>,
}

/// Parses one token per line, each optionally followed by its expiry time: `2027-01-31T00:00:00Z`.
/// Skips empty lines and lines that start with `#`.
pub(crate) fn lines(content: &[u8]) -> Result<Vec<Line<'_>>, Cause> {
    let mut lines = Vec::new();
    for (number, line) in std::str::from_utf8(content)?.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(token) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let until = words.next().map(|time| time.parse::<Timestamp>().map(SystemTime::from)).transpose();
        let until = until.map_err(|error| format!("line {}: invalid expiry time: {error}", number + 1))?;
        if words.next().is_some() {
            return Err(format!("line {}: more than a token and an expiry time", number + 1).into());
        }
        lines.push(Line { token, until });
    }
    Ok(lines)
}

/// Returns true if the expiry time is in the future or absent.
pub(crate) fn is_unexpired(until: Option<SystemTime>) -> bool {
    until.is_none_or(|until| SystemTime::now() < until)
}
