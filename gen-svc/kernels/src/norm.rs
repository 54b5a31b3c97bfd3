//! Root mean square normalization of rows.

use crate::clock::Part;
use crate::error::{Error, expect, expect_multiple};
use crate::isa::{Isa, Kernel, LANES};
use crate::kernels::Kernels;

/// y = x / sqrt(mean(x²) + epsilon) * (offset + weight).
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// \[columns\].
    pub weight: &'a [f32],
    pub epsilon: f32,
    /// Added to each weight: Gemma's checkpoints store the weights minus one.
    pub offset: f32,
}

/// Bytes of rows per task. For fewer bytes, waking another thread takes longer than the
/// computation.
pub(crate) const TASK_BYTES: usize = 32 << 10;

/// Returns the rows per task, for rows of `columns` numbers.
pub(crate) fn rows_per_task(columns: usize) -> usize {
    (TASK_BYTES / size_of::<f32>() / columns.max(1)).max(1)
}

impl Kernels {
    /// Normalizes each row of `x`, \[rows\]\[columns\], into the same row of `out`.
    pub fn norm(&self, x: &[f32], norm: Norm<'_>, out: &mut [f32]) -> Result<(), Error> {
        self.norm_rows(x, norm, None, out)
    }

    /// Normalizes each row of `x`, \[rows\]\[columns\], and adds it, multiplied by `scale`, to the
    /// same row of `out`.
    pub fn add_norm(&self, x: &[f32], norm: Norm<'_>, scale: f32, out: &mut [f32]) -> Result<(), Error> {
        self.norm_rows(x, norm, Some(scale), out)
    }

    fn norm_rows(&self, x: &[f32], norm: Norm<'_>, add: Option<f32>, out: &mut [f32]) -> Result<(), Error> {
        let _running = self.time(Part::Norms);
        let columns = norm.weight.len();
        expect_multiple("rows to normalize", columns.max(1), x.len())?;
        expect_multiple("weights of a norm", 1, columns)?;
        expect("output", x.len(), out.len())?;
        let rows = rows_per_task(columns);
        self.team.run_on_chunks(out, rows * columns, &|task, out| {
            let x = &x[task * rows * columns..][..out.len()];
            self.level.run(Rows { x, norm, add, out });
        });
        Ok(())
    }
}

struct Rows<'a> {
    x: &'a [f32],
    norm: Norm<'a>,
    add: Option<f32>,
    out: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let columns = self.norm.weight.len();
        for (x, out) in self.x.chunks_exact(columns).zip(self.out.chunks_exact_mut(columns)) {
            let inverse = inverse_root_mean_square(isa, x, self.norm.epsilon);
            let weights = self.norm.weight.chunks(LANES);
            for ((x, out), weight) in x.chunks(LANES).zip(out.chunks_mut(LANES)).zip(weights) {
                let lanes = scaled(isa, isa.load_part(x, 0.0), inverse, weight, self.norm.offset);
                let lanes = match self.add {
                    None => lanes,
                    Some(scale) => isa.add(isa.load_part(out, 0.0), isa.mul(lanes, isa.splat(scale))),
                };
                isa.store_part(lanes, out);
            }
        }
    }
}

/// Normalizes a row in place.
#[inline(always)]
pub(crate) fn normalize<I: Isa>(isa: I, row: &mut [f32], norm: &Norm<'_>) {
    let inverse = inverse_root_mean_square(isa, row, norm.epsilon);
    for (x, weight) in row.chunks_mut(LANES).zip(norm.weight.chunks(LANES)) {
        isa.store_part(scaled(isa, isa.load_part(x, 0.0), inverse, weight, norm.offset), x);
    }
}

/// Normalizes first and then multiplies by the weight, as the reference implementations do.
#[inline(always)]
fn scaled<I: Isa>(isa: I, x: I::F, inverse: f32, weight: &[f32], offset: f32) -> I::F {
    isa.mul(isa.mul(x, isa.splat(inverse)), isa.add(isa.splat(offset), isa.load_part(weight, 0.0)))
}

#[inline(always)]
fn inverse_root_mean_square<I: Isa>(isa: I, x: &[f32], epsilon: f32) -> f32 {
    1.0 / (sum_of_squares(isa, x) / x.len() as f32 + epsilon).sqrt()
}

/// Adds squares in four chains of eight lanes, which fixes the order and keeps the adders busy.
#[inline(always)]
pub(crate) fn sum_of_squares<I: Isa>(isa: I, x: &[f32]) -> f32 {
    let [mut a, mut b, mut c, mut d] = [isa.splat(0.0); 4];
    let (whole, rest) = x.as_chunks::<{ 4 * LANES }>();
    for lanes in whole {
        let lanes = lanes.as_chunks::<LANES>().0;
        a = square_and_add(isa, isa.load(&lanes[0]), a);
        b = square_and_add(isa, isa.load(&lanes[1]), b);
        c = square_and_add(isa, isa.load(&lanes[2]), c);
        d = square_and_add(isa, isa.load(&lanes[3]), d);
    }
    for lanes in rest.chunks(LANES) {
        a = square_and_add(isa, isa.load_part(lanes, 0.0), a);
    }
    isa.sum(isa.add(isa.add(a, b), isa.add(c, d)))
}

#[inline(always)]
fn square_and_add<I: Isa>(isa: I, x: I::F, sum: I::F) -> I::F {
    isa.fma(x, x, sum)
}
