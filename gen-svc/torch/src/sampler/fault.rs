//! Failures of the sampler that tests inject. Without one, nothing fails.

use std::fmt;

use crate::error::Error;

/// A call of the device's sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplerCall {
    /// Chooses the tokens of a step.
    Step,
    /// Chooses the tokens of rows apart from a step.
    Apart,
    /// Chooses tokens again, with all tokens ranked.
    Again,
    /// Copies a row whose token is chosen later.
    Keep,
    /// Copies a row to the host.
    Fetch,
}

type Fault = Box<dyn FnMut(SamplerCall, usize) -> Result<(), Error> + Send>;

/// Decides which calls fail.
#[derive(Default)]
pub(super) struct Faults(Option<Fault>);

impl Faults {
    pub(super) fn new(fault: impl FnMut(SamplerCall, usize) -> Result<(), Error> + Send + 'static) -> Self {
        Self(Some(Box::new(fault)))
    }

    /// Returns the error of a call with this many rows.
    pub(super) fn check(&mut self, call: SamplerCall, rows: usize) -> Result<(), Error> {
        self.0.as_mut().map_or(Ok(()), |fault| fault(call, rows))
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&self.0.is_some()).finish()
    }
}
