//! Matrix products y = x Wᵀ with their epilogue: bias, gate, residual.
//!
//! A task computes some panels of weights for all tokens. Weights are read from memory once per
//! call; tokens are small and come from the cache. Every sum over columns has one fixed order,
//! independent of the other tokens and of the ISA level. A token's result therefore depends on the
//! token only, bit for bit.

mod bf16;
mod blocks;
mod finish;
mod floats;
mod formats;
mod integers;
mod prefetch;
mod product;
mod quads;
mod sums;
#[cfg(target_arch = "x86_64")]
mod tiles;

pub use product::{Epilogue, Input, Linear, Product, Projection};

use std::ops::Range;

use crate::clock::Part;
use crate::disjoint::Disjoint;
use crate::element::{F16, F32};
use crate::error::Error;
use crate::isa::{IsaLevel, LANES};
use crate::kernels::Kernels;
use crate::pack::{BlockFormat, Format, Matrix};
use crate::quantize::Int8Rows;
use crate::rounded::PairRows;
use bf16::PairProducts;
use finish::{Finish, Outputs};
use floats::Floats;
use sums::{PanelSums, split};

/// The number of tokens per pass. A pass multiplies a group of panels by these tokens, so that both
/// fit into the CPU cache. With float weights, a pass has half as many tokens and more panels.
const TOKENS_PER_PASS: usize = 256;
/// The number of result vectors per matrix that a task computes before the epilogue, for one token,
/// a small batch and a larger batch.
const RESULTS_PER_PASS: [usize; 3] = [PANELS_PER_PRODUCT, 4 * SMALL_BATCH, 2 * TOKENS_PER_PASS];
/// The number of panels that are multiplied by one token at a time.
const PANELS_PER_PRODUCT: usize = 4;
/// The maximum number of tokens in a small batch.
const SMALL_BATCH: usize = 16;

impl Kernels {
    /// Computes all products of one input. Weights of bf16 are multiplied by the input rounded to
    /// bf16, to nearest, ties to even. Writes outputs only if every shape is valid.
    pub fn multiply(&self, input: Input<'_>, products: &mut [Product<'_>]) -> Result<(), Error> {
        let _running = self.time(Part::Products);
        let tokens = input.tokens()?;
        if input.integers.is_some_and(Int8Rows::has_tiles) && !self.level.has_tiles() {
            return Err(Error::NotQuantized);
        }
        products.iter().try_for_each(|product| product.check(&input, tokens))?;
        self.with_pair_rows(|rounded| {
            if products.iter().any(|product| product.projection.needs_pairs()) {
                rounded.fill(&self.team, self.level, input.floats, input.columns);
            }
            self.compute(Rows { input, rounded }, tokens, products);
        });
        Ok(())
    }

    fn compute(&self, x: Rows<'_>, tokens: usize, products: &mut [Product<'_>]) {
        let total: usize = products.iter().map(|product| product.projection.bytes()).sum();
        let task_bytes = (total / (16 * self.team.threads())).clamp(16 << 10, 128 << 10);
        let mut tasks = 0;
        let jobs: Vec<Job<'_>> = products.iter_mut().map(|product| Job::new(product, task_bytes, &mut tasks)).collect();
        self.team.run(tasks, &|task| {
            let job = &jobs[jobs.partition_point(|job| job.first_task <= task) - 1];
            let task = task - job.first_task;
            match tokens {
                1 => job.compute::<{ RESULTS_PER_PASS[0] }>(self.level, x, tokens, task),
                2..=SMALL_BATCH => job.compute::<{ RESULTS_PER_PASS[1] }>(self.level, x, tokens, task),
                _ => job.compute::<{ RESULTS_PER_PASS[2] }>(self.level, x, tokens, task),
            }
        });
    }
}

/// The rows of a call, in all the forms that its matrices need.
#[derive(Debug, Clone, Copy)]
struct Rows<'a> {
    input: Input<'a>,
    /// Filled if a matrix has bf16.
    rounded: &'a PairRows,
}

/// A product, divided into tasks.
struct Job<'a> {
    outputs: Outputs<'a>,
    panels_per_task: usize,
    first_task: usize,
}

impl<'a> Job<'a> {
    /// Creates a job and reserves its task numbers in `tasks`.
    fn new(product: &'a mut Product<'_>, task_bytes: usize, tasks: &mut usize) -> Self {
        let rows = product.projection.rows();
        let panels = rows.div_ceil(LANES);
        let panel_bytes = product.projection.bytes() / panels.max(1);
        let panels_per_task =
            (task_bytes / panel_bytes.max(1)).next_multiple_of(PANELS_PER_PRODUCT).max(PANELS_PER_PRODUCT);
        let first_task = *tasks;
        *tasks += panels.div_ceil(panels_per_task);
        let out = Disjoint::new(product.out);
        let outputs = Outputs { projection: product.projection, epilogue: product.epilogue, out, rows };
        Self { outputs, panels_per_task, first_task }
    }

    /// Computes one task, with `N` results of each matrix at a time.
    fn compute<const N: usize>(&self, level: IsaLevel, x: Rows<'_>, tokens: usize, task: usize) {
        let Outputs { projection, rows, .. } = &self.outputs;
        let first = task * self.panels_per_task;
        let panels = first..(first + self.panels_per_task).min(rows.div_ceil(LANES));
        let mut tiles = [[[0.0; LANES]; N]; 2];
        let max_tokens = if projection.needs_integers() { TOKENS_PER_PASS } else { TOKENS_PER_PASS / 2 };
        for tokens in split(0..tokens, max_tokens) {
            for panels in split(panels.clone(), N / tokens.len()) {
                for (linear, tile) in projection.linears().into_iter().flatten().zip(&mut tiles) {
                    compute_tile(level, linear.matrix, panels.clone(), x, tokens.clone(), tile);
                }
                let tiles = tiles.each_ref().map(|tile| &tile[..]);
                level.run(Finish { outputs: &self.outputs, panels, tokens: tokens.clone(), tiles });
            }
        }
    }
}

/// Computes products of panels and tokens: \[panels\]\[tokens\]\[lanes\].
fn compute_tile(
    level: IsaLevel,
    matrix: &Matrix,
    panels: Range<usize>,
    x: Rows<'_>,
    tokens: Range<usize>,
    out: &mut PanelSums,
) {
    match (matrix.format(), x.input.integers) {
        (Format::F32, _) => level.run(Floats::<F32>::new(matrix, panels, &x.input, tokens, out)),
        (Format::F16, _) => level.run(Floats::<F16>::new(matrix, panels, &x.input, tokens, out)),
        (Format::Bf16, _) => level.run_pairs(PairProducts { matrix, panels, x: x.rounded, tokens, out }),
        (Format::Block(block), Some(x)) => {
            compute_blocks(level, block, blocks::Call { matrix, panels, x, tokens, out })
        }
        // `Linear::check` has rejected this case.
        (Format::Block(_), None) => {}
    }
}

fn compute_blocks(level: IsaLevel, format: BlockFormat, call: blocks::Call<'_>) {
    use formats::{IQ4_XS, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    match format {
        BlockFormat::Q4_0 => compute_format::<Q4_0>(level, call),
        BlockFormat::Q4_1 => compute_format::<Q4_1>(level, call),
        BlockFormat::Q4_K => compute_format::<Q4_K>(level, call),
        BlockFormat::Q5_0 => compute_format::<Q5_0>(level, call),
        BlockFormat::Q5_1 => compute_format::<Q5_1>(level, call),
        BlockFormat::Q5_K => compute_format::<Q5_K>(level, call),
        BlockFormat::IQ4_XS => compute_format::<IQ4_XS>(level, call),
        // The same panels.
        BlockFormat::Q6_K | BlockFormat::Q3_K => compute_format::<Q6_K>(level, call),
        BlockFormat::Q8_0 | BlockFormat::IQ4_NL => compute_format::<Q8_0>(level, call),
    }
}

fn compute_format<K: formats::StaticFormat>(level: IsaLevel, call: blocks::Call<'_>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(amx) = level.tiles().filter(|_| call.x.has_tiles()) {
        return tiles::compute::<K>(amx, call);
    }
    level.run(integers::Integers::<K>::new(call));
}
