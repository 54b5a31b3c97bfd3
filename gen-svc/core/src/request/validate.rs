//! Checks of values in a request.

use tandem_common::field::Path;

use crate::error::RequestError;

/// Limits of a list of strings.
#[derive(Clone, Copy)]
pub(super) struct StringLimits {
    count: usize,
    bytes: usize,
}

/// The limits of stop strings and of lines to strip.
pub(super) const STOP_STRINGS: StringLimits = StringLimits { count: 64, bytes: MAX_STOP_STRING_BYTES };
/// The limits of reasoning markers.
pub(super) const MARKERS: StringLimits = StringLimits { count: MAX_MARKERS, bytes: 64 };

pub(super) const MAX_STOP_STRING_BYTES: usize = 1024;
pub(super) const MAX_STOP_TOKEN_IDS: usize = 1024;
pub(super) const MAX_MARKERS: usize = 16;

/// Fails with `problem` unless the value is acceptable.
pub(super) fn check(
    acceptable: bool,
    field: impl Into<Path>,
    problem: impl FnOnce() -> String,
) -> Result<(), RequestError> {
    if acceptable { Ok(()) } else { Err(RequestError::invalid(field, problem())) }
}

/// Fails unless the value is from `least` to `most`.
pub(super) fn check_between(field: &str, value: u32, least: u32, most: u32) -> Result<(), RequestError> {
    check((least..=most).contains(&value), field, || format!("must be {least} to {most}, is {value}"))
}

/// Fails if a list has more than `most` entries.
pub(super) fn check_count(field: impl Into<Path>, count: usize, most: usize) -> Result<(), RequestError> {
    check(count <= most, field, || format!("must be at most {most}, are {count}"))
}

/// Fails if an id is outside the vocabulary.
pub(super) fn check_ids(field: impl Into<Path>, ids: &[u32], vocabulary: usize) -> Result<(), RequestError> {
    match ids.iter().position(|&id| id as usize >= vocabulary) {
        None => Ok(()),
        Some(i) => {
            let problem = format!("must be below the vocabulary size {vocabulary}, is {}", ids[i]);
            Err(RequestError::invalid(field.into().index(i), problem))
        }
    }
}

/// Fails if a list has too many strings, or one that is empty or too long.
pub(super) fn check_strings(
    field: impl Into<Path>,
    strings: &[String],
    limits: StringLimits,
) -> Result<(), RequestError> {
    let field = field.into();
    check_count(field.clone(), strings.len(), limits.count)?;
    for (i, string) in strings.iter().enumerate() {
        let (bytes, most) = (string.len(), limits.bytes);
        check((1..=most).contains(&bytes), field.clone().index(i), || {
            format!("must have 1 to {most} bytes, has {bytes}")
        })?;
    }
    Ok(())
}
