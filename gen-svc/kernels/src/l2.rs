//! L2 normalization of the queries and keys of linear attention.

use crate::clock::Part;
use crate::error::{Error, expect_multiple};
use crate::isa::{Isa, Kernel, LANES};
use crate::kernels::Kernels;
use crate::norm::{rows_per_task, sum_of_squares};
use crate::state::StateShape;

/// Added to the sum of squares. Source: `l2norm` of transformers' gated DeltaNet, whose models have no
/// setting for it.
const EPSILON: f32 = 1e-6;

impl Kernels {
    /// Normalizes the query heads and key heads of convolved rows in place: x / sqrt(sum(x²) + 1e-6).
    /// Queries are then multiplied by Dk^-0.5. `rows` is \[T\]\[C\]: queries, keys and values.
    pub fn normalize_queries_and_keys(&self, shape: &StateShape, rows: &mut [f32]) -> Result<(), Error> {
        let _running = self.time(Part::Norms);
        let sizes = shape.sizes()?;
        let columns = sizes.channels;
        expect_multiple("rows of queries, keys and values", columns, rows.len())?;
        let size = shape.key_size;
        // At most the numbers of a task are read.
        self.team.run_on_chunks(rows, rows_per_task(2 * sizes.keys) * columns, &|_, rows| {
            for row in rows.chunks_exact_mut(columns) {
                let (queries, rest) = row.split_at_mut(sizes.keys);
                self.level.run(L2Norm { heads: queries, size, factor: 1.0 / (size as f32).sqrt() });
                self.level.run(L2Norm { heads: &mut rest[..sizes.keys], size, factor: 1.0 });
            }
        });
        Ok(())
    }
}

struct L2Norm<'a> {
    /// \[heads\]\[size\].
    heads: &'a mut [f32],
    size: usize,
    factor: f32,
}

impl Kernel for L2Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let factor = isa.splat(self.factor);
        for head in self.heads.chunks_exact_mut(self.size) {
            let inverse = isa.splat(1.0 / (sum_of_squares(isa, head) + EPSILON).sqrt());
            for x in head.as_chunks_mut::<LANES>().0 {
                isa.store(isa.mul(isa.mul(isa.load(x), inverse), factor), x);
            }
        }
    }
}
