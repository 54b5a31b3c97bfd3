//! Random numbers from the operating system.

/// Returns a random number: not predictable, and different in every process.
///
/// # Panics
/// Panics if the operating system has no random numbers. Linux has them from early in its start.
#[must_use]
pub fn random_u64() -> u64 {
    getrandom::u64().expect("the operating system has random numbers")
}
