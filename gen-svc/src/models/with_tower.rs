//! A text model with the tower of its images.

use super::interface::{Logits, Model, ModelShape, SequenceChunk};
use super::vision::TorchTower;
use crate::error::Error;

/// A text model, and its tower until the engine takes it.
#[derive(Debug)]
pub(super) struct WithTower {
    pub(super) model: Box<dyn Model>,
    pub(super) tower: Option<TorchTower>,
}

impl Model for WithTower {
    fn shape(&self) -> ModelShape {
        self.model.shape()
    }

    fn allocate(&mut self, blocks: u32) -> Result<(), Error> {
        self.model.allocate(blocks)
    }

    fn forward(&mut self, chunks: &[SequenceChunk<'_>], logits: &mut Logits) -> Result<(), Error> {
        self.model.forward(chunks, logits)
    }

    fn take_tower(&mut self) -> Option<TorchTower> {
        self.tower.take()
    }
}
