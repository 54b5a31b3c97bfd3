//! y = x Wᵀ, and what follows it at once: bias, gate, residual.
//!
//! A task owns some panels of weights and all tokens: weights are read from memory once per call, and tokens, which are small,
//! come from the cache. Along the columns every sum is made in one order, whatever the tokens around it and the level, so a
//! token's result depends on that token alone, to the bit.

mod finish;
mod floats;
mod integers;
#[cfg(target_arch = "x86_64")]
mod tiles;

use std::ops::Range;

use crate::Kernels;
use crate::act::Activation;
use crate::disjoint::Disjoint;
use crate::element::{Bf16, F16, F32};
use crate::error::{Error, expect, expect_below, expect_multiple};
use crate::isa::{LANES, Level};
use crate::pack::{BlockFormat, Format, Matrix};
use crate::quantize::Int8Rows;
use finish::Finish;
use floats::Floats;

/// Rows to multiply: \[tokens\]\[columns\].
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub floats: &'a [f32],
    pub columns: usize,
    /// The same rows, quantized. Needed when one of the matrices [needs integers](Format::needs_integers).
    pub integers: Option<&'a Int8Rows>,
}

/// A matrix, and what is added to its outputs.
#[derive(Debug, Clone, Copy)]
pub struct Linear<'a> {
    pub matrix: &'a Matrix,
    /// \[rows of the matrix\].
    pub bias: Option<&'a [f32]>,
}

/// What a product's outputs are made of.
#[derive(Debug, Clone, Copy)]
pub enum Layer<'a> {
    Linear(Linear<'a>),
    /// activation(gate) * up, element by element. Both have the same sizes.
    Gated {
        gate: Linear<'a>,
        up: Linear<'a>,
        activation: Activation,
    },
}

/// Where outputs go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum After<'a> {
    /// Into the place of what was there.
    Store,
    /// Times `scale`, onto what was there.
    Add { scale: f32 },
    /// Token t's times `scales[t]`, onto row `rows[t]` of the output, which has any number of rows: an expert's share.
    Scatter { rows: &'a [u32], scales: &'a [f32] },
}

/// One product of a call: several can share their input.
#[derive(Debug)]
pub struct Product<'a> {
    pub layer: Layer<'a>,
    pub after: After<'a>,
    /// \[tokens\]\[rows of the matrix\], but for [`After::Scatter`].
    pub out: &'a mut [f32],
}

/// Tokens that are multiplied by some panels before the next panels' turn, so that both stay in the cache; half as many with floats,
/// of which more panels are taken together.
const TOKENS: usize = 256;
/// Results of each matrix that are kept until they are finished, times the lanes: with one token, with few, and with more.
const KEPT: [usize; 3] = [PANELS, 4 * FEW, 2 * TOKENS];
/// Panels that are multiplied with one token together.
const PANELS: usize = 4;
/// Tokens that are few.
const FEW: usize = 16;
/// Results that are kept: \[panels\]\[tokens\]\[lanes\].
type Tile = [[f32; LANES]];

impl Kernels {
    /// Computes all products of one input. Outputs are written only if every shape is right.
    pub fn multiply(&self, input: Input<'_>, products: &mut [Product<'_>]) -> Result<(), Error> {
        let tokens = input.tokens()?;
        if input.integers.is_some_and(Int8Rows::has_tiles) && !self.level.has_tiles() {
            return Err(Error::NotQuantized);
        }
        products.iter().try_for_each(|product| product.check(&input, tokens))?;
        let total: usize = products.iter().map(|product| product.layer.bytes()).sum();
        let task_bytes = (total / (16 * self.team.threads())).clamp(16 << 10, 128 << 10);
        let mut tasks = 0;
        let jobs: Vec<Job<'_>> = products.iter_mut().map(|product| Job::new(product, task_bytes, &mut tasks)).collect();
        self.team.run(tasks, &|task| {
            let job = &jobs[jobs.partition_point(|job| job.first_task <= task) - 1];
            match tokens {
                1 => job.compute::<{ KEPT[0] }>(self.level, &input, tokens, task - job.first_task),
                2..=FEW => job.compute::<{ KEPT[1] }>(self.level, &input, tokens, task - job.first_task),
                _ => job.compute::<{ KEPT[2] }>(self.level, &input, tokens, task - job.first_task),
            }
        });
        Ok(())
    }
}

impl Input<'_> {
    fn tokens(&self) -> Result<usize, Error> {
        expect_multiple("input", self.columns.max(1), self.floats.len())?;
        let tokens = self.floats.len() / self.columns.max(1);
        if let Some(integers) = self.integers {
            expect("columns of quantized input", self.columns, integers.columns())?;
            expect("rows of quantized input", tokens, integers.rows())?;
        }
        Ok(tokens)
    }
}

impl Product<'_> {
    fn check(&self, input: &Input<'_>, tokens: usize) -> Result<(), Error> {
        for linear in self.layer.linears().into_iter().flatten() {
            linear.check(input)?;
            expect("rows of a gate and its values", self.layer.rows(), linear.matrix.rows())?;
        }
        match self.after {
            After::Scatter { rows, scales } => self.check_scatter(tokens, rows, scales),
            After::Store | After::Add { .. } => expect("output", tokens * self.layer.rows(), self.out.len()),
        }
    }

    fn check_scatter(&self, tokens: usize, rows: &[u32], scales: &[f32]) -> Result<(), Error> {
        expect("rows to scatter to", tokens, rows.len())?;
        expect("scales of scattered rows", tokens, scales.len())?;
        expect_multiple("output", self.layer.rows(), self.out.len())?;
        let limit = self.out.len() / self.layer.rows();
        rows.iter().try_for_each(|row| expect_below("row to scatter to", limit, *row as usize))
    }
}

impl Linear<'_> {
    fn check(&self, input: &Input<'_>) -> Result<(), Error> {
        expect("columns of a matrix and its input", self.matrix.columns(), input.columns)?;
        if let Some(bias) = self.bias {
            expect("bias", self.matrix.rows(), bias.len())?;
        }
        let missing = self.matrix.format().needs_integers() && input.integers.is_none();
        if missing { Err(Error::NotQuantized) } else { Ok(()) }
    }
}

impl<'a> Layer<'a> {
    fn linears(&self) -> [Option<Linear<'a>>; 2] {
        match *self {
            Self::Linear(linear) => [Some(linear), None],
            Self::Gated { gate, up, .. } => [Some(gate), Some(up)],
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::Linear(linear) | Self::Gated { gate: linear, .. } => linear.matrix.rows(),
        }
    }

    fn needs_integers(&self) -> bool {
        self.linears().into_iter().flatten().any(|linear| linear.matrix.format().needs_integers())
    }

    fn bytes(&self) -> usize {
        self.linears().into_iter().flatten().map(|linear| linear.matrix.bytes()).sum()
    }
}

/// A product, cut into tasks.
struct Job<'a> {
    layer: Layer<'a>,
    after: After<'a>,
    /// \[tokens\]\[rows\]; a task writes the rows of its panels.
    out: Disjoint<'a, f32>,
    rows: usize,
    panels_per_task: usize,
    first_task: usize,
}

impl<'a> Job<'a> {
    /// Takes as many task numbers as it needs.
    fn new(product: &'a mut Product<'_>, task_bytes: usize, tasks: &mut usize) -> Self {
        let rows = product.layer.rows();
        let panels = rows.div_ceil(LANES);
        let panel_bytes = product.layer.bytes() / panels.max(1);
        let panels_per_task = (task_bytes / panel_bytes.max(1)).next_multiple_of(PANELS).max(PANELS);
        let first_task = *tasks;
        *tasks += panels.div_ceil(panels_per_task);
        let out = Disjoint::new(product.out);
        Self { layer: product.layer, after: product.after, out, rows, panels_per_task, first_task }
    }

    /// `N` results of each matrix are kept at a time.
    fn compute<const N: usize>(&self, level: Level, input: &Input<'_>, tokens: usize, task: usize) {
        let first = task * self.panels_per_task;
        let panels = first..(first + self.panels_per_task).min(self.rows.div_ceil(LANES));
        let mut tiles = [[[0.0; LANES]; N]; 2];
        let most = if self.layer.needs_integers() { TOKENS } else { TOKENS / 2 };
        for tokens in cut(0..tokens, most) {
            for panels in cut(panels.clone(), N / tokens.len()) {
                for (linear, tile) in self.layer.linears().into_iter().flatten().zip(&mut tiles) {
                    compute_tile(level, linear.matrix, panels.clone(), input, tokens.clone(), tile);
                }
                level.run(Finish {
                    job: self,
                    panels,
                    tokens: tokens.clone(),
                    tiles: tiles.each_ref().map(|tile| &tile[..]),
                });
            }
        }
    }
}

/// Consecutive ranges of at most `length`.
fn cut(range: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(length).map(move |start| start..(start + length).min(range.end))
}

/// Products of some panels with some tokens: \[panels\]\[tokens\]\[lanes\].
fn compute_tile(
    level: Level,
    matrix: &Matrix,
    panels: Range<usize>,
    input: &Input<'_>,
    tokens: Range<usize>,
    out: &mut Tile,
) {
    match (matrix.format(), input.integers) {
        (Format::F32, _) => level.run(Floats::<F32>::new(matrix, panels, input, tokens, out)),
        (Format::F16, _) => level.run(Floats::<F16>::new(matrix, panels, input, tokens, out)),
        (Format::Bf16, _) => level.run(Floats::<Bf16>::new(matrix, panels, input, tokens, out)),
        (Format::Block(block), Some(x)) => {
            compute_blocks(level, block, integers::Call { matrix, panels, x, tokens, out })
        }
        // `Linear::check` has refused it.
        (Format::Block(_), None) => {}
    }
}

fn compute_blocks(level: Level, format: BlockFormat, call: integers::Call<'_>) {
    use integers::{Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    match format {
        BlockFormat::Q4_0 => compute_known::<Q4_0>(level, call),
        BlockFormat::Q4_1 => compute_known::<Q4_1>(level, call),
        BlockFormat::Q4_K => compute_known::<Q4_K>(level, call),
        BlockFormat::Q5_0 => compute_known::<Q5_0>(level, call),
        BlockFormat::Q5_1 => compute_known::<Q5_1>(level, call),
        BlockFormat::Q5_K => compute_known::<Q5_K>(level, call),
        BlockFormat::Q6_K => compute_known::<Q6_K>(level, call),
        BlockFormat::Q8_0 => compute_known::<Q8_0>(level, call),
    }
}

fn compute_known<K: integers::Known>(level: Level, call: integers::Call<'_>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(amx) = level.tiles().filter(|_| call.x.has_tiles()) {
        return tiles::compute::<K>(amx, call);
    }
    level.run(integers::Integers::<K>::new(call));
}
