//! The port of the engine to the computation of steps.

use std::any::Any;
use std::fmt;

use tandem_images::PreparedImage;

use super::features::Features;
use super::interface::{DevicePart, ModelShape, SequenceChunk};
use crate::cache::CacheSize;
use crate::error::StepError;
use crate::sampling::{Chosen, RowPlan, Sampling, Slot, TokenPlan};

/// Computes steps, and draws the tokens of their rows.
///
/// A step is launched, then finished. `launch` may return before the tokens are known, and one further step
/// may be launched before a step is finished. Steps are finished in the order of their launches.
pub trait Backend: fmt::Debug + Send {
    /// Returns the model's sizes.
    fn shape(&self) -> ModelShape;

    /// Returns the bytes of the weights in this process's memory, as they are packed. None if the library that holds
    /// them does not say it.
    fn weight_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the most tokens of a sequence that is not [long](SequenceChunk::is_long). A sequence that becomes
    /// longer is computed again from its start. `None`: all sequences are computed alike.
    fn long_after(&self) -> Option<usize> {
        None
    }

    /// Allocates the KV cache and the slots of recurrent states, in place of earlier ones. Called before the first
    /// step.
    ///
    /// # Errors
    /// There is not that much memory.
    fn allocate(&mut self, size: CacheSize) -> Result<(), StepError>;

    /// Returns the devices in the order of computation. Empty: the host computes.
    fn device_parts(&self) -> Vec<DevicePart> {
        Vec::new()
    }

    /// Returns memory that the backend keeps for later calls to the devices.
    fn free_cache(&mut self) {}

    /// Returns true if a device draws tokens, and a step can be launched before the last one is finished.
    fn is_pipelined(&self) -> bool {
        false
    }

    /// Returns true if a step can draw tokens with these parameters. Otherwise it fetches their rows.
    fn can_draw(&self, _sampling: &Sampling) -> bool {
        true
    }

    /// Returns the most outputs of which one step should compute a token. The others take turns.
    fn max_decodes(&self) -> usize {
        usize::MAX
    }

    /// Returns the most tokens that a step can draft for a sequence. Tokens are drawn from their rows too, of
    /// which the backend accepts a prefix.
    fn max_drafted(&self) -> usize {
        0
    }

    /// Returns a place for the counts of one output's tokens, if the parameters need it.
    fn slot(&mut self, sampling: &Sampling) -> Option<Slot>;

    /// Computes the chunks independently of each other: writes their keys and values into their blocks, and
    /// uses their requested rows of logits as planned. `None`: [`draw`](Self::draw) follows with the plans.
    ///
    /// Preconditions: every token is below the vocabulary's size, and a chunk's blocks have room for all its
    /// positions. The rows of an image have the model's hidden size, and end within the chunk.
    ///
    /// # Errors
    /// The backend's. The chunks' blocks are then undefined from `past` on, and so are the states that they write. No
    /// step is launched.
    fn launch(&mut self, chunks: &[SequenceChunk<'_>], plans: Option<&[RowPlan<'_>]>) -> Result<(), StepError>;

    /// Uses the rows of the step that was launched last, without plans.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    fn draw(&mut self, plans: &[RowPlan<'_>]) -> Result<(), StepError>;

    /// Waits for the earliest launched step. Returns a result for each of its plans.
    ///
    /// # Errors
    /// The backend's, for all rows.
    fn finish(&mut self) -> Result<Vec<Drawn>, StepError>;

    /// Draws undecided rows of the step that was finished last. Returns a result for each plan.
    ///
    /// # Errors
    /// The backend's, for all rows.
    fn draw_again(&mut self, _plans: &[RowPlan<'_>]) -> Result<Vec<Drawn>, StepError> {
        Ok(Vec::new())
    }

    /// Draws the token of a kept row. The plan's row has the index 0.
    ///
    /// # Errors
    /// The backend's, or [`StepError::NotFinite`].
    fn draw_kept(&mut self, row: KeptRow, plan: &RowPlan<'_>) -> Result<Chosen, StepError>;
}

/// Computes the features of images, one after another, each in slices.
pub trait Tower: fmt::Debug + Send {
    /// Starts an image, in place of an unfinished one.
    ///
    /// # Errors
    /// The backend's.
    fn start(&mut self, image: &PreparedImage) -> Result<(), StepError>;

    /// Returns the image tokens that the next slice counts. 0 if no image is started.
    fn slice_tokens(&self) -> usize;

    /// Computes the next slice, and waits for it. Returns the features after the last slice.
    ///
    /// # Errors
    /// The backend's. The image is not started then.
    fn advance(&mut self) -> Result<Option<Features>, StepError>;

    /// Returns the bytes that the started image has between two slices.
    fn held_bytes(&self) -> usize;

    /// Drops the unfinished image.
    fn stop(&mut self);

    /// Returns memory that the backend keeps for later calls to the devices.
    fn free_cache(&mut self) {}
}

/// The result of a row's plan.
#[derive(Debug)]
pub enum Drawn {
    /// The token.
    Chosen(Chosen),
    /// The row, whose token is drawn later.
    Kept(KeptRow),
    /// The row follows a drafted token that was not accepted.
    Rejected,
    /// The row must be drawn again. The inputs of a later step may have had another token.
    Undecided,
    /// The row has no token.
    Failed(StepError),
}

impl From<Result<Chosen, StepError>> for Drawn {
    fn from(chosen: Result<Chosen, StepError>) -> Self {
        chosen.map_or_else(Self::Failed, Self::Chosen)
    }
}

/// A row of logits whose token is drawn later.
pub enum KeptRow {
    /// On the host.
    Host(Vec<f32>),
    /// On a device, in the form of the backend.
    Device(Box<dyn Any + Send>),
}

impl fmt::Debug for KeptRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host(_) => "Host",
            Self::Device(_) => "Device",
        })
    }
}

/// Computes chunks, and returns the requested rows of logits.
///
/// # Errors
/// The backend's.
pub fn logits(backend: &mut dyn Backend, chunks: &[SequenceChunk<'_>]) -> Result<Vec<Vec<f32>>, StepError> {
    let rows: usize = chunks.iter().map(|chunk| chunk.logit_rows().len()).sum();
    let fetch = |row| RowPlan { row, token: TokenPlan::Fetched, logprobs: None };
    backend.launch(chunks, Some(&(0..rows).map(fetch).collect::<Vec<_>>()))?;
    let row = |drawn| match drawn {
        Drawn::Kept(KeptRow::Host(row)) => Ok(row),
        Drawn::Failed(error) => Err(error),
        _ => Err(StepError::Broken),
    };
    backend.finish()?.into_iter().map(row).collect()
}
