//! Vector operations at the ISA levels of processors, and the choice of a level.
//!
//! A kernel is written once, as a [`Kernel`] over any [`Isa`], and compiled for each level. All
//! levels round each operation in the same way and add in the same order, so results do not depend
//! on the processor.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod bf16;
mod level;
mod operations;
mod pairs;
mod portable;
mod sizes;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use level::IsaLevel;
pub(crate) use operations::{Arithmetic, Isa, Kernel, Quads, Wide};
pub(crate) use pairs::{PairKernel, Pairs, Sums, is_tame, least_exponent};
pub(crate) use sizes::{BLOCK, LANES, Pair, TILE_ROWS, WIDE};
