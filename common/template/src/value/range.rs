//! Ranges of integers.

/// `range(start, stop, step)`.
#[derive(Debug)]
pub(crate) struct Range {
    start: i128,
    stop: i128,
    step: i128,
}

impl Range {
    /// Returns a range; `step` must not be 0.
    pub(crate) fn new(start: i128, stop: i128, step: i128) -> Self {
        Self { start, stop, step }
    }

    pub(crate) fn start(&self) -> i128 {
        self.start
    }

    pub(crate) fn stop(&self) -> i128 {
        self.stop
    }

    pub(crate) fn step(&self) -> i128 {
        self.step
    }

    pub(crate) fn len(&self) -> usize {
        let span =
            if self.step > 0 { self.stop.saturating_sub(self.start) } else { self.start.saturating_sub(self.stop) };
        let step = self.step.unsigned_abs();
        match u128::try_from(span) {
            Ok(span) => usize::try_from(span.div_ceil(step)).unwrap_or(usize::MAX),
            Err(_) => 0,
        }
    }

    /// Returns every `step`th number between two positions; nothing if the numbers would be too
    /// large.
    pub(crate) fn slice(&self, start: i128, stop: i128, step: i128) -> Option<Self> {
        const MAX: i128 = 1 << 96;
        let end = |at: i128| self.step.checked_mul(at)?.checked_add(self.start);
        let slice = Self { start: end(start)?, stop: end(stop)?, step: self.step.checked_mul(step)? };
        let fits = [slice.start, slice.stop, slice.step].iter().all(|number| number.abs() < MAX);
        fits.then_some(slice)
    }

    pub(crate) fn get(&self, at: usize) -> Option<i128> {
        let item = self.start.saturating_add((at as i128).saturating_mul(self.step));
        let inside = if self.step > 0 { item < self.stop } else { item > self.stop };
        inside.then_some(item)
    }
}
