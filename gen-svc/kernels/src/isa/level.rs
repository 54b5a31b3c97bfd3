//! The ISA levels for which kernels are compiled, and the choice of a level.

use super::operations::Kernel;
use super::pairs::{Imitated, PairKernel};
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{amx, avx2, avx512, bf16};

/// An instruction set that this processor has. A level that the processor lacks cannot be
/// constructed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IsaLevel(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(target_arch = "x86_64")]
    Amx(amx::Amx),
}

impl IsaLevel {
    /// Returns the best level of this processor.
    #[must_use]
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or(Self(Kind::Portable))
    }

    /// Returns every level of this processor, from the simplest to the best.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let portable = Some(Self(Kind::Portable));
        #[cfg(target_arch = "x86_64")]
        let levels = [
            portable,
            avx2::detect().map(Kind::Avx2).map(Self),
            avx512::detect().map(Kind::Avx512).map(Self),
            amx::detect().map(Kind::Amx).map(Self),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let levels = [portable];
        levels.into_iter().flatten().collect()
    }

    /// Returns the level with this name if this processor has it: `portable`, `avx2`, `avx512` or
    /// `amx`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|level| level.name() == name)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Kind::Amx(_) => "amx",
        }
    }

    /// Returns the tile unit, if this level uses it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn tiles(self) -> Option<amx::Amx> {
        match self.0 {
            Kind::Amx(amx) => Some(amx),
            _ => None,
        }
    }

    /// Returns true if this level uses the processor's tile unit.
    pub(crate) fn has_tiles(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.tiles().is_some();
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Runs a kernel with this level's instructions.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Kind::Portable => kernel.run(portable::Portable),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(isa) => avx2::run(isa, kernel),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(isa) => avx512::run(isa, kernel),
            #[cfg(target_arch = "x86_64")]
            Kind::Amx(amx) => amx.run(kernel),
        }
    }

    /// Runs a kernel with this level's products of pairs of bf16 numbers.
    pub(crate) fn run_pairs<K: PairKernel>(self, kernel: K) {
        #[cfg(target_arch = "x86_64")]
        if let Some(pairs) = self.bf16() {
            return bf16::run(pairs, kernel);
        }
        self.run(Imitated(kernel));
    }

    /// Returns the processor's products of pairs, if this level uses them.
    #[cfg(target_arch = "x86_64")]
    fn bf16(self) -> Option<bf16::Bf16> {
        match self.0 {
            Kind::Portable | Kind::Avx2(_) => None,
            Kind::Avx512(isa) => bf16::detect(isa),
            Kind::Amx(amx) => bf16::detect(amx.avx512()),
        }
    }
}
