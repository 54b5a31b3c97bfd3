//! Errors about names that do not exist, with the nearest name that does.

/// The least similarity of a suggestion, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.75;

/// Returns the message for a key that a JSON object may not have: the nearest key, then all keys.
#[must_use]
pub fn unknown_key(key: &str, known: &[&str]) -> String {
    let suggestion = nearest(key, known).map(|near| format!(", did you mean {near}?")).unwrap_or_default();
    format!("is not a key of a request{suggestion} (keys: {})", known.join(", "))
}

/// Returns the known name that is most similar to a name, or None if no name is similar.
#[must_use]
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let rated = known.iter().map(|known| (similarity(name, known), *known));
    let (rate, nearest) = rated.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (rate >= MIN_SIMILARITY).then_some(nearest)
}

/// Returns the share of bytes in the longest common subsequence of two names, from 0 to 1.
fn similarity(a: &str, b: &str) -> f64 {
    // The time is the product of the lengths, and names of keys are short.
    if a.len() > 64 || b.len() > 64 {
        return 0.0;
    }
    // row[j] is the length for the bytes of `a` so far and the first j bytes of `b`.
    let mut row = vec![0_usize; b.len() + 1];
    for x in a.bytes() {
        let mut diagonal = 0;
        for (j, y) in b.bytes().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if x.eq_ignore_ascii_case(&y) { diagonal + 1 } else { above.max(row[j]) };
            diagonal = above;
        }
    }
    2.0 * row[b.len()] as f64 / (a.len() + b.len()).max(1) as f64
}
