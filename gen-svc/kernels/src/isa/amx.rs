//! AMX: one instruction multiplies 16 rows of bytes by 16 other rows. All other operations at this
//! level are those of AVX-512.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::array::from_fn;
use std::sync::OnceLock;

use super::avx512::{self, Avx512};
use super::operations::Kernel;
use super::sizes::{BLOCK, TILE_ROWS, WIDE};

/// Proof that the processor has the instructions and that the operating system permits them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amx(Avx512);

/// Sums of products: \[rows of activations\]\[rows of weights\].
pub(crate) type Sums = [[i32; WIDE]; TILE_ROWS];
/// Bytes of weights for one product: \[columns / 4\]\[16 rows\]\[4\].
pub(crate) type Codes = [u8; 512];

pub(super) fn detect() -> Option<Amx> {
    static DETECTED: OnceLock<Option<Amx>> = OnceLock::new();
    *DETECTED.get_or_init(|| {
        let avx512 = avx512::detect()?;
        (has_tiles() && is_permitted()).then_some(Amx(avx512))
    })
}

/// Returns true if the processor has AMX-TILE and AMX-INT8. Always false under Miri, which cannot
/// run assembly.
fn has_tiles() -> bool {
    const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
    !cfg!(miri) && __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & TILE_AND_INT8 == TILE_AND_INT8
}

/// Requests permission for the tile state, which Linux grants a process only on request. Returns
/// true if it is granted.
///
/// Source: Linux, Documentation/arch/x86/xstate.rst.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_PRCTL: isize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let result: isize;
    // SAFETY: the call takes two numbers and accesses no memory; the operating system preserves all
    // registers but these.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// The configuration of the tile registers: 0 and 1 for sums, 2 and 3 for activations, 4 and 5 for
/// weights.
#[repr(C, align(64))]
struct Layout {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// The calling thread's tile unit, configured for products of `rows` rows of activations and 16
/// rows of weights over `columns` columns.
#[derive(Debug)]
pub(crate) struct Unit {
    rows: usize,
    columns: usize,
}

impl Amx {
    /// Returns the level of all other operations.
    pub(super) fn avx512(self) -> Avx512 {
        self.0
    }

    /// Runs a kernel with AVX-512.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        avx512::run(self.0, kernel)
    }

    /// Configures the tile unit until the value is dropped. `columns` is 16 or 32.
    ///
    /// # Safety
    /// The thread configures no other unit until this one is dropped.
    #[inline(always)]
    pub(crate) unsafe fn unit(self, columns: usize) -> Unit {
        assert!(matches!(columns, 16 | 32), "tile columns must be 16 or 32");
        let mut unit = Unit { rows: 0, columns };
        unit.set_rows(TILE_ROWS);
        unit
    }
}

/// Computes two products with the given instruction. Two interleaved products hide the latency of
/// each step.
macro_rules! products {
    ($instruction:literal, $x:expr, $codes:expr, $out:expr) => {
        asm!(
            "tileloadd tmm2, [{x0} + {block}*1]",
            "tileloadd tmm4, [{codes0} + {line}*1]",
            "tilezero tmm0",
            "tileloadd tmm3, [{x1} + {block}*1]",
            "tileloadd tmm5, [{codes1} + {line}*1]",
            "tilezero tmm1",
            concat!($instruction, " tmm0, tmm2, tmm4"),
            concat!($instruction, " tmm1, tmm3, tmm5"),
            "tilestored [{out0} + {line}*1], tmm0",
            "tilestored [{out1} + {line}*1], tmm1",
            x0 = in(reg) $x[0],
            x1 = in(reg) $x[1],
            codes0 = in(reg) $codes[0],
            codes1 = in(reg) $codes[1],
            out0 = in(reg) $out[0],
            out1 = in(reg) $out[1],
            block = in(reg) BLOCK,
            line = in(reg) 64_usize,
            options(nostack),
        )
    };
}

impl Unit {
    /// Sets the number of rows of activations: at most 16.
    #[inline(always)]
    pub(crate) fn set_rows(&mut self, rows: usize) {
        if rows == self.rows {
            return;
        }
        assert!((1..=TILE_ROWS).contains(&rows), "tile rows must be 1 to 16");
        self.rows = rows;
        let (mut row_bytes, mut tile_rows) = ([0; 16], [0; 16]);
        for register in 0..2 {
            (row_bytes[register], tile_rows[register]) = (64, rows as u8);
            (row_bytes[2 + register], tile_rows[2 + register]) = (self.columns as u16, rows as u8);
            (row_bytes[4 + register], tile_rows[4 + register]) = (64, self.columns as u8 / 4);
        }
        let layout = Layout { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows: tile_rows };
        // SAFETY: reads the 64 bytes of a valid configuration; the unit proves that the instruction
        // exists.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const layout, options(nostack, readonly)) };
    }

    /// Computes two products of rows of activations with 16 rows of weights, signed or unsigned.
    ///
    /// `parts` selects the columns within the blocks of 32 columns. Rows of `out` beyond the
    /// configured rows stay unchanged.
    #[inline(always)]
    pub(crate) fn multiply<const SIGNED: bool>(
        &self,
        x: [&[[u8; BLOCK]; TILE_ROWS]; 2],
        codes: [&Codes; 2],
        parts: [usize; 2],
        out: [&mut Sums; 2],
    ) {
        assert!(parts.iter().all(|part| (part + 1) * self.columns <= BLOCK), "part exceeds the block");
        let x: [_; 2] = from_fn(|i| x[i].as_flattened()[parts[i] * self.columns..].as_ptr());
        let codes: [_; 2] = from_fn(|i| codes[i][parts[i] * TILE_ROWS * self.columns..].as_ptr());
        let out = out.map(|out| out.as_mut_ptr());
        // SAFETY: each product reads at most 16 rows of `columns` bytes of x, 32 bytes apart. It
        // reads 16 times `columns` bytes of codes, and writes at most 16 rows of `out`. The slices
        // contain them all. The unit is configured for these sizes and proves that the instructions
        // exist. No other code uses tile registers.
        unsafe {
            if SIGNED {
                products!("tdpbssd", x, codes, out);
            } else {
                products!("tdpbsud", x, codes, out);
            }
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: releases the tile state; the unit proves that the instruction exists.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}
