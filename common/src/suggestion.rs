//! Errors about names that do not exist, with the nearest name that does.

/// The least Jaro similarity of a suggestion, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.8;
/// The length of a name from which it is like none. The comparison takes the product of the lengths.
const MAX_NAME_BYTES: usize = 64;

/// Returns the message for a key that a JSON object may not have: the nearest key, then all keys.
#[must_use]
pub fn unknown_key(key: &str, known: &[&str]) -> String {
    let suggestion = nearest(key, known).map(|near| format!(", did you mean {near}?")).unwrap_or_default();
    format!("is not a key of a request{suggestion} (keys: {})", known.join(", "))
}

/// Returns the known name that is most similar to a name, or None if no name is similar.
#[must_use]
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let rated = known.iter().map(|known| (strsim::jaro(&name, known), *known));
    let (rate, nearest) = rated.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (rate >= MIN_SIMILARITY).then_some(nearest)
}
