//! y = x Wᵀ, and what follows it at once: bias, gate, residual.
//!
//! A task owns some panels of weights and all tokens: weights are read from memory once per call, and tokens, which are small,
//! come from the cache. Along the columns every sum is made in one order, whatever the tokens around it and the level, so a
//! token's result depends on that token alone, to the bit.

mod finish;
mod floats;
mod formats;
mod integers;
mod product;
mod sums;
#[cfg(target_arch = "x86_64")]
mod tiles;

use std::ops::Range;

pub use product::{Epilogue, Input, Layer, Linear, Product};

use crate::disjoint::Disjoint;
use crate::element::{Bf16, F16, F32};
use crate::error::Error;
use crate::isa::{IsaLevel, LANES};
use crate::kernels::Kernels;
use crate::pack::{BlockFormat, Format, Matrix};
use crate::quantize::Int8Rows;
use finish::{Finish, Outputs};
use floats::Floats;
use sums::{PanelSums, split};

/// Tokens that are multiplied by some panels before the next panels' turn, so that both stay in the cache; half as many with floats,
/// of which more panels are taken together.
const TOKENS_PER_PASS: usize = 256;
/// Results of each matrix that are kept until they are finished, times the lanes: with one token, with few, and with more.
const RESULTS_PER_PASS: [usize; 3] = [PANELS_PER_PRODUCT, 4 * SMALL_BATCH, 2 * TOKENS_PER_PASS];
/// Panels that are multiplied with one token together.
const PANELS_PER_PRODUCT: usize = 4;
/// Tokens that are few.
const SMALL_BATCH: usize = 16;

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
                1 => job.compute::<{ RESULTS_PER_PASS[0] }>(self.level, &input, tokens, task - job.first_task),
                2..=SMALL_BATCH => {
                    job.compute::<{ RESULTS_PER_PASS[1] }>(self.level, &input, tokens, task - job.first_task)
                }
                _ => job.compute::<{ RESULTS_PER_PASS[2] }>(self.level, &input, tokens, task - job.first_task),
            }
        });
        Ok(())
    }
}

/// A product, cut into tasks.
struct Job<'a> {
    outputs: Outputs<'a>,
    panels_per_task: usize,
    first_task: usize,
}

impl<'a> Job<'a> {
    /// Takes as many task numbers as it needs.
    fn new(product: &'a mut Product<'_>, task_bytes: usize, tasks: &mut usize) -> Self {
        let rows = product.layer.rows();
        let panels = rows.div_ceil(LANES);
        let panel_bytes = product.layer.bytes() / panels.max(1);
        let panels_per_task =
            (task_bytes / panel_bytes.max(1)).next_multiple_of(PANELS_PER_PRODUCT).max(PANELS_PER_PRODUCT);
        let first_task = *tasks;
        *tasks += panels.div_ceil(panels_per_task);
        let out = Disjoint::new(product.out);
        let outputs = Outputs { layer: product.layer, epilogue: product.epilogue, out, rows };
        Self { outputs, panels_per_task, first_task }
    }

    /// `N` results of each matrix are kept at a time.
    fn compute<const N: usize>(&self, level: IsaLevel, input: &Input<'_>, tokens: usize, task: usize) {
        let Outputs { layer, rows, .. } = &self.outputs;
        let first = task * self.panels_per_task;
        let panels = first..(first + self.panels_per_task).min(rows.div_ceil(LANES));
        let mut tiles = [[[0.0; LANES]; N]; 2];
        let most = if layer.needs_integers() { TOKENS_PER_PASS } else { TOKENS_PER_PASS / 2 };
        for tokens in split(0..tokens, most) {
            for panels in split(panels.clone(), N / tokens.len()) {
                for (linear, tile) in layer.linears().into_iter().flatten().zip(&mut tiles) {
                    compute_tile(level, linear.matrix, panels.clone(), input, tokens.clone(), tile);
                }
                let tiles = tiles.each_ref().map(|tile| &tile[..]);
                level.run(Finish { outputs: &self.outputs, panels, tokens: tokens.clone(), tiles });
            }
        }
    }
}

/// Products of some panels with some tokens: \[panels\]\[tokens\]\[lanes\].
fn compute_tile(
    level: IsaLevel,
    matrix: &Matrix,
    panels: Range<usize>,
    input: &Input<'_>,
    tokens: Range<usize>,
    out: &mut PanelSums,
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

fn compute_blocks(level: IsaLevel, format: BlockFormat, call: integers::Call<'_>) {
    use formats::{Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    match format {
        BlockFormat::Q4_0 => compute_format::<Q4_0>(level, call),
        BlockFormat::Q4_1 => compute_format::<Q4_1>(level, call),
        BlockFormat::Q4_K => compute_format::<Q4_K>(level, call),
        BlockFormat::Q5_0 => compute_format::<Q5_0>(level, call),
        BlockFormat::Q5_1 => compute_format::<Q5_1>(level, call),
        BlockFormat::Q5_K => compute_format::<Q5_K>(level, call),
        BlockFormat::Q6_K => compute_format::<Q6_K>(level, call),
        BlockFormat::Q8_0 => compute_format::<Q8_0>(level, call),
    }
}

fn compute_format<K: formats::StaticFormat>(level: IsaLevel, call: integers::Call<'_>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(amx) = level.tiles().filter(|_| call.x.has_tiles()) {
        return tiles::compute::<K>(amx, call);
    }
    level.run(integers::Integers::<K>::new(call));
}
