//! The time of decode steps that are launched one after the other, without waiting for their tokens: the least
//! time of the device, or the time in which the host launches them.

use std::time::{Duration, Instant};

use tch::Tensor;
use tokio_util::sync::CancellationToken;

use super::config::{Config, RuntimeChoice};
use super::load;
use crate::cache::BlockId;
use crate::device::upload::Upload;
use crate::error::Error;
use crate::models::{DeviceRows, LoadedModel, Logits, LogitsFor, Model, ModelShape, SequenceChunk};
use crate::sampling::Sampling;
use crate::sampling::device::{DeviceSampler, Draw, Launched, RowPlan, TokenPlan};

/// The steps before the timed ones.
const FIRST_STEPS: usize = 4;

/// The steps to time.
#[derive(Debug, Clone)]
pub struct StepTimes {
    /// The numbers of sequences. Each is timed.
    pub sequences: Vec<usize>,
    /// The positions of a sequence before the first step.
    pub positions: usize,
    /// The number of steps.
    pub steps: usize,
}

/// Loads the configured model, which libtorch computes, and returns the time of one greedy step for each
/// number of sequences. Keys and values are not those of tokens.
///
/// # Errors
/// The model cannot be loaded, or has fewer positions than the last step needs; a step fails.
pub fn measure(config: Config, times: &StepTimes) -> Result<Vec<Duration>, Error> {
    let _no_grad = tch::no_grad_guard();
    let config = Config { runtime: RuntimeChoice::Torch, ..config };
    let (_, LoadedModel { mut model, .. }) = load::load(&config, CancellationToken::new())?;
    times.sequences.iter().map(|&count| time(model.as_mut(), count.max(1), times)).collect()
}

fn time(model: &mut dyn Model, count: usize, times: &StepTimes) -> Result<Duration, Error> {
    let StepTimes { positions, steps, .. } = *times;
    let mut sequences = Sequences::new(model, count, positions, FIRST_STEPS + steps)?;
    sequences.launch(model, FIRST_STEPS)?.finish()?;
    let start = Instant::now();
    sequences.launch(model, steps.max(1))?.finish()?;
    Ok(start.elapsed() / u32::try_from(steps.max(1)).unwrap_or(u32::MAX))
}

/// Sequences in decode.
struct Sequences {
    /// The blocks of each.
    blocks: Vec<Vec<BlockId>>,
    /// The positions of each.
    past: usize,
    sampler: DeviceSampler,
    /// `[sequences, 1]`, the tokens of the last step.
    chosen: Option<Tensor>,
}

impl Sequences {
    fn new(model: &mut dyn Model, count: usize, past: usize, steps: usize) -> Result<Self, Error> {
        let ModelShape { context, block, .. } = model.shape();
        if past + steps > context {
            let problem = format!("must leave {steps} of the model's {context} positions, is {past}");
            return Err(Error::invalid("positions", problem));
        }
        let each = (past + steps).div_ceil(block);
        model.allocate((count * each) as u32)?;
        let blocks = (0..count).map(|i| (i * each..(i + 1) * each).map(|block| BlockId(block as u32)).collect());
        let sampler = model.sampler().ok_or(Error::EngineFailed)?;
        Ok(Self { blocks: blocks.collect(), past, sampler, chosen: None })
    }

    /// Launches steps. Returns the last.
    fn launch(&mut self, model: &mut dyn Model, steps: usize) -> Result<Launched, Error> {
        let mut last = self.step(model)?;
        for _ in 1..steps {
            last = self.step(model)?;
        }
        Ok(last)
    }

    fn step(&mut self, model: &mut dyn Model) -> Result<Launched, Error> {
        let sampling = Sampling { temperature: 0.0, ..Sampling::NEUTRAL };
        let plan = |row| {
            let draw = Draw { sampling: &sampling, random: 0.0, forbidden: &[], allowed: None, history: None };
            RowPlan { row, token: TokenPlan::Drawn(draw), logprobs: None }
        };
        let (mut upload, mut logits) = (Upload::default(), Logits::default());
        let plans: Vec<RowPlan<'_>> = (0..self.blocks.len()).map(plan).collect();
        let planned = self.sampler.plan(plans.len(), &plans, &mut upload);
        let chosen = self.chosen.take();
        let chunk = |(i, blocks)| SequenceChunk {
            tokens: &[0],
            chosen: chosen.is_some().then_some(i),
            past: self.past,
            blocks: Vec::as_slice(blocks),
            copy: None,
            logits: LogitsFor::Last,
            images: &[],
            positions: None,
        };
        let chunks: Vec<_> = self.blocks.iter().enumerate().map(chunk).collect();
        logits.stay_with(upload, chosen);
        model.forward(&chunks, &mut logits)?;
        let DeviceRows { rows, sent } = logits.take_from_device().ok_or(Error::EngineFailed)?;
        let launched = self.sampler.launch(planned, &rows, &sent)?;
        self.chosen = Some(launched.ids().shallow_clone());
        self.past += 1;
        Ok(launched)
    }
}
