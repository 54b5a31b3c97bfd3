//! Files of bearer tokens, for servers that accept them and clients that send them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::SystemTime;

use jiff::Timestamp;

use crate::reload::{Cause, SourceFile};

/// One line of a token file.
#[derive(Debug, PartialEq)]
pub(crate) struct Line<'a> {
    pub(crate) token: &'a str,
    /// None for a token that does not expire.
    pub(crate) until: Option<SystemTime>,
    /// The name of its holder in logs, metrics and limits.
    pub(crate) name: Option<&'a str>,
    /// The highest priority of its holder's requests.
    pub(crate) max_priority: Option<i32>,
    /// True if its holder may call on behalf of others.
    pub(crate) is_delegate: bool,
}

/// The form of a line.
const EXPECTED: &str = "expected TOKEN [EXPIRY] [name=NAME] [max-priority=NUMBER] [delegate]";
/// The prefix of a line's word that names the holder.
const NAME_KEY: &str = "name=";
/// The prefix of a line's word that limits the priority of its holder's requests.
const MAX_PRIORITY_KEY: &str = "max-priority=";
/// The word of a holder that may call on behalf of others.
const DELEGATE: &str = "delegate";
/// The bytes with which some editors begin a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The limit of a name, which is part of every log line and every metric of its calls.
const MAX_NAME_BYTES: usize = 64;

/// Parses lines of the form `TOKEN [EXPIRY] [name=NAME] [max-priority=NUMBER] [delegate]`, with an
/// expiry time such as `2027-01-31T00:00:00Z`. The words after the token may be in any order. Skips
/// empty lines and lines that start with `#`. A line may be repeated. A token with other words than before is a
/// contradiction, and fails.
pub(crate) fn lines(file: &SourceFile) -> Result<Vec<Line<'_>>, Cause> {
    let (mut lines, mut numbers) = (Vec::new(), HashMap::new());
    let content = file.content.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&file.content);
    let text = std::str::from_utf8(content).map_err(|error| file.error(error))?;
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(token) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let number = number + 1;
        let line = Line::parse(token, words).map_err(|problem| file.error(format!("line {number}: {problem}")))?;
        match numbers.entry(token) {
            Entry::Vacant(entry) => drop(entry.insert((number, lines.len()))),
            Entry::Occupied(first) if lines[first.get().1] == line => continue,
            Entry::Occupied(first) => {
                let first = first.get().0;
                return Err(file.error(format!("lines {first} and {number} have the same token with other words")));
            }
        }
        lines.push(line);
    }
    Ok(lines)
}

impl<'a> Line<'a> {
    /// Fails if the token is missing, so that no expiry time and no name becomes a token, or if no header can
    /// have it, so that no call would ever match it.
    fn parse(token: &'a str, words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let is_word = token.starts_with(NAME_KEY) || token.starts_with(MAX_PRIORITY_KEY) || token == DELEGATE;
        if is_word || expiry(token).is_ok() {
            return Err(format!("missing token: {EXPECTED}"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("invalid token: use printable ASCII characters, as headers do".to_owned());
        }
        let mut line = Self { token, until: None, name: None, max_priority: None, is_delegate: false };
        for word in words {
            line.set(word)?;
        }
        Ok(line)
    }

    /// Reads one word after the token. Fails if it is invalid or repeated.
    fn set(&mut self, word: &'a str) -> Result<(), String> {
        let repeated = if let Some(name) = word.strip_prefix(NAME_KEY) {
            self.name.replace(checked_name(name)?).map(|_| "name")
        } else if let Some(number) = word.strip_prefix(MAX_PRIORITY_KEY) {
            let number = number.parse().map_err(|_| "invalid max-priority: expected an integer of 32 bits".to_owned());
            self.max_priority.replace(number?).map(|_| "max-priority")
        } else if word == DELEGATE {
            std::mem::replace(&mut self.is_delegate, true).then_some(DELEGATE)
        } else {
            self.until.replace(expiry(word)?).map(|_| "an expiry time")
        };
        repeated.map_or(Ok(()), |word| Err(format!("{word} is there twice: {EXPECTED}")))
    }
}

/// Reads an expiry time. The error does not repeat the text, which may be a secret.
fn expiry(text: &str) -> Result<SystemTime, String> {
    let time = text.parse::<Timestamp>().map(SystemTime::from);
    time.map_err(|_| format!("a word is no expiry time such as 2027-01-31T00:00:00Z: {EXPECTED}"))
}

/// Checks that a name needs no escaping anywhere.
fn checked_name(name: &str) -> Result<&str, String> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if is_plain && (1..=MAX_NAME_BYTES).contains(&name.len()) {
        Ok(name)
    } else {
        Err(format!("invalid name: use 1 to {MAX_NAME_BYTES} letters, digits, `.`, `_` and `-`"))
    }
}

/// Returns true if the expiry time is in the future or absent.
pub(crate) fn is_unexpired(until: Option<SystemTime>) -> bool {
    until.is_none_or(|until| SystemTime::now() < until)
}
