//! Arithmetic of language models on the CPU.

#![allow(unsafe_code)] // vector instructions, and threads that write parts of one slice; every block says why it is sound

mod act;
mod buffer;
mod disjoint;
mod error;
mod half;
mod isa;
mod matmul;
mod pack;
mod pool;
mod quantize;

pub use act::Activation;
pub use error::Error;
pub use isa::Level;
pub use matmul::{After, Input, Layer, Linear, Product};
pub use pack::{BlockFormat, Format, Matrix, RowOrder, Rows, Target};
pub use pool::Team;
pub use quantize::Int8Rows;

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
}
