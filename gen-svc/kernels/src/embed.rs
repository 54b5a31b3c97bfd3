//! Embedding lookup.

use crate::clock::Part;
use crate::error::{Error, expect, expect_below};
use crate::kernels::Kernels;
use crate::norm::rows_per_task;
use crate::pack::Matrix;
use crate::vocab;

impl Kernels {
    /// Copies the rows `ids` of a table, multiplied by `scale`: `out` is \[ids\]\[columns\].
    pub fn embed(&self, table: &Matrix, ids: &[u32], scale: f32, out: &mut [f32]) -> Result<(), Error> {
        let _running = self.time(Part::Embedding);
        let columns = table.columns();
        expect("output", ids.len().saturating_mul(columns), out.len())?;
        ids.iter().try_for_each(|id| expect_below("token", table.rows(), *id as usize))?;
        let rows = rows_per_task(columns);
        self.team.run_on_chunks(out, rows * columns, &|task, out| {
            for (id, out) in ids[task * rows..].iter().zip(out.chunks_exact_mut(columns)) {
                table.unpack_row(*id as usize, out);
                vocab::scale(self.level, out, scale);
            }
        });
        Ok(())
    }
}
