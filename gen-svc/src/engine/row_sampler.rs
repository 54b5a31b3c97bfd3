//! Rows of logits on the device: calls of the sampler, with a second try if the device has too little
//! memory.

use tch::Tensor;

use crate::error::{DeviceFault, Error};
use crate::models::Model;
use crate::sampling::device::{Chosen, DeviceSampler, RowOutcome, RowPlan};

/// A device's sampler, and the model that can free memory for it.
pub(super) struct RowSampler<'a> {
    pub(super) model: &'a mut dyn Model,
    pub(super) sampler: &'a mut DeviceSampler,
}

impl RowSampler<'_> {
    /// Chooses the token of a row apart from a step, `[1, vocabulary]`.
    ///
    /// # Errors
    /// libtorch failed, twice if the device has too little memory.
    pub(super) fn choose(&mut self, row: &Tensor, plan: &RowPlan<'_>) -> Result<Option<Result<Chosen, Error>>, Error> {
        let chosen = self.with_second_try(|sampler| sampler.run(row, std::slice::from_ref(plan)))?;
        Ok(chosen.into_iter().next())
    }

    /// Chooses the tokens of rows that were undecided. If the device has too little memory for all, chooses
    /// one after the other. A row for which it has too little memory fails alone.
    ///
    /// # Errors
    /// libtorch failed for another reason.
    pub(super) fn decide(
        &mut self,
        rows: &Tensor,
        plans: &[&RowPlan<'_>],
    ) -> Result<Vec<Result<Chosen, Error>>, Error> {
        match self.sampler.decide(rows, plans) {
            Err(error) if is_out_of_memory(&error) => {
                self.free(&error);
                plans.iter().map(|plan| self.decide_alone(rows, plan)).collect()
            }
            decided => Ok(decided?.into_iter().map(RowOutcome::chosen).collect()),
        }
    }

    fn decide_alone(&mut self, rows: &Tensor, plan: &RowPlan<'_>) -> Result<Result<Chosen, Error>, Error> {
        match self.sampler.decide(rows, &[plan]) {
            Err(error) if is_out_of_memory(&error) => {
                self.free(&error);
                Ok(Err(error))
            }
            decided => Ok(decided?.into_iter().next().map_or(Err(Error::NotFinite), RowOutcome::chosen)),
        }
    }

    /// Copies a row `[1, vocabulary]` of a step, so that its token can be chosen later.
    ///
    /// # Errors
    /// libtorch failed, twice if the device has too little memory.
    pub(super) fn keep(&mut self, row: &Tensor) -> Result<Tensor, Error> {
        self.with_second_try(|sampler| sampler.keep(row))
    }

    /// Copies a row to the host.
    ///
    /// # Errors
    /// libtorch failed, twice if the device has too little memory.
    pub(super) fn fetch(&mut self, row: &Tensor) -> Result<Vec<f32>, Error> {
        self.with_second_try(|sampler| sampler.fetch(row))
    }

    fn with_second_try<T>(&mut self, mut call: impl FnMut(&mut DeviceSampler) -> Result<T, Error>) -> Result<T, Error> {
        match call(self.sampler) {
            Err(error) if is_out_of_memory(&error) => {
                self.free(&error);
                call(self.sampler)
            }
            done => done,
        }
    }

    fn free(&mut self, error: &Error) {
        tracing::warn!(error = error.chain(), "sampling exceeds the device's memory, trying again");
        self.model.free_cache();
    }
}

/// Returns true if the device has too little memory for a call.
pub(super) fn is_out_of_memory(error: &Error) -> bool {
    error.device_fault() == Some(DeviceFault::OutOfMemory)
}

/// Returns true if the device has failed for good.
pub(super) fn is_lost(error: &Error) -> bool {
    error.device_fault() == Some(DeviceFault::Lost)
}
