//! The backend of models whose rows of logits are on the host. A step is complete when it is launched.

use super::backend::{Backend, Drawn, KeptRow};
use super::interface::{Logits, Model, ModelShape, SequenceChunk};
use crate::cache::CacheSize;
use crate::error::StepError;
use crate::sampling::{Chosen, HostSampler, Logprobs, RowPlan, Sampling, Slot, TokenPlan};

/// The outputs of which one step computes a token. More in one step do not make it more efficient, and new
/// requests would wait for longer steps.
const MAX_DECODES: usize = 32;

/// Computes steps with a model, and draws their tokens on the host.
#[derive(Debug)]
pub struct HostBackend {
    model: Box<dyn Model>,
    /// Reused by all steps.
    logits: Logits,
    sampler: HostSampler,
    /// The results of the launched step.
    drawn: Vec<Drawn>,
}

impl HostBackend {
    /// Creates the backend of a model.
    #[must_use]
    pub fn new(model: Box<dyn Model>) -> Self {
        Self { model, logits: Logits::default(), sampler: HostSampler::default(), drawn: Vec::new() }
    }
}

impl Backend for HostBackend {
    fn shape(&self) -> ModelShape {
        self.model.shape()
    }

    fn weight_bytes(&self) -> Option<u64> {
        self.model.weight_bytes()
    }

    fn long_after(&self) -> Option<usize> {
        self.model.long_after()
    }

    fn allocate(&mut self, size: CacheSize) -> Result<(), StepError> {
        self.model.allocate(size)
    }

    fn max_decodes(&self) -> usize {
        MAX_DECODES
    }

    fn free_cache(&mut self) {
        self.model.free_cache();
    }

    fn slot(&mut self, sampling: &Sampling) -> Option<Slot> {
        self.sampler.slot(sampling)
    }

    fn launch(&mut self, chunks: &[SequenceChunk<'_>], plans: Option<&[RowPlan<'_>]>) -> Result<(), StepError> {
        self.model.forward(chunks, &mut self.logits)?;
        plans.map_or(Ok(()), |plans| self.draw(plans))
    }

    fn draw(&mut self, plans: &[RowPlan<'_>]) -> Result<(), StepError> {
        let Self { logits, sampler, drawn, .. } = self;
        drawn.extend(plans.iter().map(|plan| {
            let row = logits.row(plan.row);
            match &plan.token {
                TokenPlan::Given(id) => {
                    let logprobs = plan.logprobs.map(|count| Logprobs::new(row, *id, count));
                    Drawn::Chosen(Chosen { id: *id, logprobs })
                }
                TokenPlan::Drawn(draw) => sampler.draw(row, draw, plan.logprobs).into(),
                TokenPlan::Kept | TokenPlan::Fetched => Drawn::Kept(KeptRow::Host(row.to_vec())),
            }
        }));
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<Drawn>, StepError> {
        Ok(std::mem::take(&mut self.drawn))
    }

    fn draw_kept(&mut self, row: KeptRow, plan: &RowPlan<'_>) -> Result<Chosen, StepError> {
        match (row, plan.draw()) {
            (KeptRow::Host(mut row), Some(draw)) => self.sampler.draw(&mut row, draw, plan.logprobs),
            _ => Err(StepError::Broken),
        }
    }
}
