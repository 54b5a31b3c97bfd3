//! The depthwise causal convolution of linear attention layers.
//!
//! Shapes: T tokens of a step, C channels, K taps.

use std::ops::Range;

use crate::act::Activation;
use crate::clock;
use crate::disjoint::Disjoint;
use crate::error::{Error, expect, product};
use crate::isa::{Isa, Kernel, WIDE};
use crate::kernels::Kernels;
use crate::kv::MIN_PARALLEL_NUMBERS;
use crate::state::{LayerStates, Operation, StateRun, StateStep};

/// The convolution of one layer: y\[t\]\[c\] = activation(sum over j < K of w\[j\]\[c\] * x\[t - (K - 1) + j\]\[c\]).
/// Rows before the first token of a sequence are zero.
#[derive(Debug, Clone, Copy)]
pub struct Convolution<'a> {
    /// The index among the store's layers.
    pub layer: usize,
    /// \[K\]\[C\]; the last tap multiplies the token's own row. Model files have \[C\]\[K\]: see [`by_tap`].
    pub weights: &'a [f32],
    pub activation: Activation,
    /// x: \[T\]\[C\], in the order of the runs.
    pub rows: &'a [f32],
}

/// Transposes weights from \[C\]\[K\] to \[K\]\[C\].
#[must_use]
pub fn by_tap(weights: &[f32], taps: usize) -> Vec<f32> {
    (0..taps).flat_map(|tap| weights.iter().skip(tap).step_by(taps).copied()).collect()
}

impl Kernels {
    /// Convolves the rows of every run, which follow the rows of the run's state: `out` is \[T\]\[C\].
    /// Stores the last K - 1 rows in the slots that the runs write.
    pub fn convolve(
        &self,
        step: &mut StateStep<'_>,
        convolution: Convolution<'_>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let _running = self.time(clock::Part::Recurrence);
        let (channels, taps) = (step.sizes().channels, step.shape().taps);
        step.check_layer(Operation::Convolution, convolution.layer)?;
        expect("weights of a convolution", product(&[taps, channels])?, convolution.weights.len())?;
        expect("rows to convolve", product(&[step.tokens(), channels])?, convolution.rows.len())?;
        expect("output", convolution.rows.len(), out.len())?;
        let is_small = out.len() < MIN_PARALLEL_NUMBERS;
        let (runs, out) = (step.runs(), Disjoint::new(out));
        let parts = parts(runs, step.firsts(), taps, channels);
        let states = step.advance(Operation::Convolution, convolution.layer);
        self.team.run_serially_if(is_small, parts.len(), &|task| {
            let part = &parts[task];
            self.level.run(ConvolvePart { convolution, states: &states, part, taps, columns: channels, out: &out });
        });
        Ok(())
    }
}

/// Channels of a part.
const PART_CHANNELS: usize = 1 << 10;
/// The least tokens of a part, except the last of a run.
const PART_TOKENS: usize = 32;

/// Channels and tokens of one run.
struct Part<'a> {
    run: &'a StateRun<'a>,
    /// Index of the run's first token among the tokens of all runs.
    first: usize,
    /// Token indices within the run. The first part of a run also reads and writes its state.
    tokens: Range<usize>,
    channels: Range<usize>,
}

/// Divides the step into parts. Only the first of a run's parts has tokens whose window reaches into the
/// state.
fn parts<'a>(runs: &'a [StateRun<'a>], firsts: Vec<usize>, taps: usize, channels: usize) -> Vec<Part<'a>> {
    let length = PART_TOKENS.max(taps);
    let mut parts = Vec::new();
    for (run, first) in runs.iter().zip(firsts) {
        for start in (0..run.length.max(1)).step_by(length) {
            let tokens = start..(start + length).min(run.length);
            for channel in (0..channels).step_by(PART_CHANNELS) {
                let channels = channel..(channel + PART_CHANNELS).min(channels);
                parts.push(Part { run, first, tokens: tokens.clone(), channels });
            }
        }
    }
    parts
}

/// The input before the first token of a sequence.
static ZEROS: [f32; PART_CHANNELS] = [0.0; PART_CHANNELS];

struct ConvolvePart<'a> {
    convolution: Convolution<'a>,
    states: &'a LayerStates<'a>,
    part: &'a Part<'a>,
    taps: usize,
    /// C.
    columns: usize,
    out: &'a Disjoint<'a, f32>,
}

impl Kernel for ConvolvePart<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Part { run, tokens, .. } = self.part;
        for token in tokens.clone() {
            self.convolve(isa, token);
        }
        if tokens.start == 0 {
            for save in run.saves {
                self.store_rows(save.tokens, save.slot);
            }
            // At the end, since all other rows are read from this slot if it is `from`.
            self.store_rows(run.length, run.to);
        }
    }
}

impl ConvolvePart<'_> {
    /// Convolves one token. Sums are added in the order of the taps.
    #[inline(always)]
    fn convolve<I: Isa>(&self, isa: I, token: usize) {
        let start = (self.part.first + token) * self.columns + self.part.channels.start;
        // SAFETY: only this task accesses these channels of the token.
        let out = unsafe { self.out.slice(start, self.part.channels.len()) };
        for tap in 0..self.taps {
            let weights = &self.convolution.weights[tap * self.columns..][self.part.channels.clone()];
            let lanes = self.row(token + tap).chunks(WIDE).zip(weights.chunks(WIDE)).zip(out.chunks_mut(WIDE));
            for ((x, weight), out) in lanes {
                let sum = if tap == 0 { isa.splat(0.0) } else { isa.wide_load_part(out) };
                let sum: I::W = isa.fma(isa.wide_load_part(x), isa.wide_load_part(weight), sum);
                let is_last = tap + 1 == self.taps;
                isa.wide_store_part(if is_last { self.convolution.activation.apply(isa, sum) } else { sum }, out);
            }
        }
    }

    /// Returns an input row: the K - 1 rows of the state come first, and the run's rows follow.
    #[inline(always)]
    fn row(&self, index: usize) -> &[f32] {
        match index.checked_sub(self.taps - 1) {
            Some(token) => {
                &self.convolution.rows[(self.part.first + token) * self.columns..][self.part.channels.clone()]
            }
            None => match self.part.run.from {
                // SAFETY: among a run's parts of these channels, only the first accesses the slots, and no
                // other run writes them. `store_rows` writes other rows than it reads.
                Some(slot) => unsafe { self.states.row(slot, index, &self.part.channels) },
                None => &ZEROS[..self.part.channels.len()],
            },
        }
    }

    /// Stores the last K - 1 input rows of the first `tokens` tokens.
    #[inline(always)]
    fn store_rows(&self, tokens: usize, slot: u32) {
        if tokens == 0 && self.part.run.from == Some(slot) {
            return;
        }
        // In ascending order, so that rows move within a slot before they are replaced.
        for row in 0..self.taps - 1 {
            let from = self.row(tokens + row);
            // SAFETY: only this task accesses these channels of the slot, and `from` is a later row.
            unsafe { self.states.row_mut(slot, row, &self.part.channels) }.copy_from_slice(from);
        }
    }
}
