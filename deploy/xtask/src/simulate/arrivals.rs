//! Random arrivals that follow the hours of a week.

/// Seconds of a day.
const DAY: u64 = 86_400;
/// A burst doubles the arrivals of Wednesday at 14:00, for half an hour.
const BURST: std::ops::Range<u64> = 2 * DAY + 14 * 3600..2 * DAY + 14 * 3600 + 1800;

/// Returns the share of the peak at a second of the week, which begins on Monday.
pub(super) fn share(second: u64) -> f64 {
    let hour = (second % DAY) as f64 / 3600.0;
    // From 7 to 21 o'clock the arrivals rise to the peak and fall.
    let day = ((hour - 7.0) / 14.0 * std::f64::consts::PI).sin().max(0.0);
    let is_weekend = second / DAY >= 5;
    let burst = if BURST.contains(&second) { 2.0 } else { 1.0 };
    (0.05 + 0.95 * day * if is_weekend { 0.4 } else { 1.0 }) * burst
}

/// A stream of random numbers: SplitMix64.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number from 0 to below 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number of events of a Poisson process, from the expected number. Large numbers take
    /// several draws, because exp of a large negative number is 0.
    pub(super) fn events(&mut self, expected: f64) -> usize {
        let (mut events, mut rest) = (0, expected);
        while rest > 0.0 {
            let (part, mut product) = (rest.min(10.0), self.next());
            while product > (-part).exp() {
                product *= self.next();
                events += 1;
            }
            rest -= part;
        }
        events
    }
}
