//! The time of decode steps, each of which is launched before the last one is finished: the least time of the
//! device, or the time in which the host launches them. The kernels of a CPU finish a step when it is launched.

use std::time::{Duration, Instant};

use tandem_common::status::Reason;
use tandem_core::cache::{BlockId, CacheSize, ChunkStates, StateId};
use tandem_core::engine::Config;
use tandem_core::error::StepError;
use tandem_core::library::Library;
use tandem_core::models::{Backend, LoadedModel, LogitsFor, ModelShape, SequenceChunk};
use tandem_core::sampling::{Draw, RowPlan, Sampling, TokenPlan};
use tokio_util::sync::CancellationToken;

use super::start::load;
use crate::command::CommandError;

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

/// Loads the configured model, and returns the time of one greedy step for each
/// number of sequences. Keys and values are not those of tokens.
///
/// # Errors
/// The model cannot be loaded, or has fewer positions than the last step needs; a step fails.
pub fn measure(config: Config, library: &dyn Library, times: &StepTimes) -> Result<Vec<Duration>, CommandError> {
    let (_, LoadedModel { mut backend, .. }) = load(&config, library, CancellationToken::new())?;
    times.sequences.iter().map(|&count| time(backend.as_mut(), count.max(1), times)).collect()
}

fn time(backend: &mut dyn Backend, count: usize, times: &StepTimes) -> Result<Duration, CommandError> {
    let StepTimes { positions, steps, .. } = *times;
    let mut sequences = Sequences::new(backend, count, positions, FIRST_STEPS + steps)?;
    sequences.run(backend, FIRST_STEPS)?;
    let start = Instant::now();
    sequences.run(backend, steps.max(1))?;
    Ok(start.elapsed() / u32::try_from(steps.max(1)).unwrap_or(u32::MAX))
}

/// Sequences in decode.
struct Sequences {
    /// The blocks of each.
    blocks: Vec<Vec<BlockId>>,
    /// The positions of each.
    past: usize,
    has_states: bool,
}

impl Sequences {
    fn new(backend: &mut dyn Backend, count: usize, past: usize, steps: usize) -> Result<Self, CommandError> {
        let ModelShape { context, block, state_bytes, .. } = backend.shape();
        let problem = match past {
            1.. if state_bytes > 0 => Some(format!("must be 0 for a model with recurrent states, is {past}")),
            _ if past + steps > context => {
                Some(format!("must leave {steps} of the model's {context} positions, is {past}"))
            }
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(CommandError::Request {
                message: format!("{}: positions: {problem}", Reason::InvalidRequest.name()),
            });
        }
        let each = (past + steps).div_ceil(block);
        backend.allocate(CacheSize { blocks: (count * each) as u32, states: count as u32 })?;
        let blocks = (0..count).map(|i| (i * each..(i + 1) * each).map(|block| BlockId(block as u32)).collect());
        Ok(Self { blocks: blocks.collect(), past, has_states: state_bytes > 0 })
    }

    /// Computes steps. At most one is launched before the last one is finished.
    fn run(&mut self, backend: &mut dyn Backend, steps: usize) -> Result<(), StepError> {
        self.launch(backend, false)?;
        for _ in 1..steps {
            self.launch(backend, true)?;
            backend.finish()?;
        }
        backend.finish().map(drop)
    }

    /// Launches a step, with the tokens of the last one if that is not finished.
    fn launch(&mut self, backend: &mut dyn Backend, has_last: bool) -> Result<(), StepError> {
        let sampling = Sampling { temperature: 0.0, ..Sampling::NEUTRAL };
        let plan = |row| {
            let draw = Draw { sampling: &sampling, random: 0.0, forbidden: &[], allowed: None, history: None };
            RowPlan { row, token: TokenPlan::Drawn(draw), logprobs: None }
        };
        let plans: Vec<RowPlan<'_>> = (0..self.blocks.len()).map(plan).collect();
        let chunk = |(i, blocks)| SequenceChunk {
            tokens: &[0],
            chosen: has_last.then_some(i),
            drafted: 0,
            past: self.past,
            is_long: false,
            blocks: Vec::as_slice(blocks),
            copy: None,
            states: self.has_states.then_some(ChunkStates {
                from: (self.past > 0).then_some(StateId(i as u32)),
                to: StateId(i as u32),
                saves: &[],
            }),
            logits: LogitsFor::Last,
            images: &[],
            positions: None,
        };
        let chunks: Vec<_> = self.blocks.iter().enumerate().map(chunk).collect();
        backend.launch(&chunks, Some(&plans))?;
        self.past += 1;
        Ok(())
    }
}
