//! Arithmetic of language models on the CPU.

#![allow(unsafe_code)] // vector instructions, and threads that write parts of one slice; every block says why it is sound

mod act;
mod attention;
mod buffer;
mod disjoint;
mod element;
mod error;
mod half;
mod isa;
mod kv;
mod matmul;
mod norm;
mod pack;
mod pool;
mod quantize;
mod rope;
pub mod vocab;

pub use act::Activation;
pub use attention::{Attention, Scratch};
pub use error::Error;
pub use isa::Level;
pub use kv::{KeysValues, KvFormat, KvShape, KvStore, POSITIONS, Run};
pub use matmul::{After, Input, Layer, Linear, Product};
pub use norm::Norm;
pub use pack::{BlockFormat, Format, Matrix, RowOrder, Rows, Target};
pub use pool::Team;
pub use quantize::Int8Rows;
pub use rope::{Angles, Heads};

use error::{expect, expect_below};
use norm::rows_per_task;

/// All kernels at one level, on one thread team.
#[derive(Debug)]
pub struct Kernels {
    team: Team,
    level: Level,
}

impl Kernels {
    /// Starts `threads` - 1 threads: the caller is the first.
    #[must_use]
    pub fn new(threads: usize, level: Level) -> Self {
        Self { team: Team::new(threads), level }
    }

    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Packs rows of weights, on all threads.
    pub fn pack(&self, source: &Rows<'_>, target: Target) -> Result<Matrix, Error> {
        Matrix::pack(&self.team, source, target)
    }

    /// Quantizes `x`, \[rows\]\[columns\], into `out`.
    pub fn quantize(&self, x: &[f32], columns: usize, out: &mut Int8Rows) -> Result<(), Error> {
        out.fill(&self.team, self.level, x, columns)
    }

    /// Rows of a table, times `scale`: `out` is \[ids\]\[columns\].
    pub fn embed(&self, table: &Matrix, ids: &[u32], scale: f32, out: &mut [f32]) -> Result<(), Error> {
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
