//! GGML's block formats: what a block in a file holds, and what a panel keeps of it.
//!
//! Source of the formats: ggml's `ggml-common.h` (struct `block_*`) and `ggml-quants.c` (`dequantize_row_*`).

/// GGML block formats that can be packed.
#[allow(non_camel_case_types)] // as the formats are written everywhere
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockFormat {
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
}

/// The most codes of a block.
pub(crate) const CODES: usize = 256;

/// How a panel stores codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codes {
    /// Two per byte.
    Nibbles,
    /// One per byte, without a sign.
    Unsigned,
    /// One per byte, with a sign.
    Signed,
}

/// How a panel stores what 8 rows' codes are multiplied by, and what a value is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scales {
    /// f16 scale per row; value = scale * (code - offset).
    Scale { offset: u8 },
    /// f16 scale per row, then f16 minimum; value = scale * code + minimum.
    ScaleMinimum,
    /// For each of 8 blocks a byte per row; the same again for minima; f16 scale and f16 minimum per row, which multiply those:
    /// value = scale * code - minimum.
    Pairs,
    /// For each of 16 half blocks a signed byte per row; f16 scale per row, which multiplies it; value = scale * code.
    Halves,
}

/// A format's sizes and layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    /// Columns of a block in a file, and of a unit of a panel: 32 or 256.
    pub(crate) columns: usize,
    /// Bytes of a block in a file.
    pub(crate) bytes: usize,
    pub(crate) codes: Codes,
    pub(crate) scales: Scales,
}

impl Spec {
    /// Bytes of a unit's codes: those of 8 rows.
    pub(crate) const fn code_bytes(&self) -> usize {
        match self.codes {
            Codes::Nibbles => 4 * self.columns,
            Codes::Unsigned | Codes::Signed => 8 * self.columns,
        }
    }

    /// Bytes of a unit's scales, behind its codes.
    pub(crate) const fn scale_bytes(&self) -> usize {
        match self.scales {
            Scales::Scale { .. } => 16,
            Scales::ScaleMinimum => 32,
            Scales::Pairs => 64 + 64 + 16 + 16,
            Scales::Halves => 128 + 16,
        }
    }

    pub(crate) const fn unit_bytes(&self) -> usize {
        self.code_bytes() + self.scale_bytes()
    }
}

impl BlockFormat {
    pub(crate) const fn spec(self) -> Spec {
        use Codes::{Nibbles, Signed, Unsigned};
        let (columns, bytes, codes, scales) = match self {
            Self::Q4_0 => (32, 18, Nibbles, Scales::Scale { offset: 8 }),
            Self::Q4_1 => (32, 20, Nibbles, Scales::ScaleMinimum),
            Self::Q4_K => (256, 144, Nibbles, Scales::Pairs),
            Self::Q5_0 => (32, 22, Signed, Scales::Scale { offset: 0 }),
            Self::Q5_1 => (32, 24, Unsigned, Scales::ScaleMinimum),
            Self::Q5_K => (256, 176, Unsigned, Scales::Pairs),
            Self::Q6_K => (256, 210, Signed, Scales::Halves),
            Self::Q8_0 => (32, 34, Signed, Scales::Scale { offset: 0 }),
        };
        Spec { columns, bytes, codes, scales }
    }

    /// Takes a block of a file apart: its codes, in the order of the columns, with the sign that the panel gives them.
    pub(super) fn codes(self, block: &[u8]) -> [u8; CODES] {
        let mut codes = [0; CODES];
        match self {
            Self::Q4_0 => halves(&block[2..18], &mut codes),
            Self::Q4_1 => halves(&block[4..20], &mut codes),
            Self::Q4_K => {
                block[16..144].chunks_exact(32).zip(codes.chunks_exact_mut(64)).for_each(|(b, c)| halves(b, c))
            }
            Self::Q5_0 => fifth_bits(&block[2..6], &block[6..22], 16, &mut codes),
            Self::Q5_1 => fifth_bits(&block[4..8], &block[8..24], 0, &mut codes),
            Self::Q5_K => q5_k(block, &mut codes),
            Self::Q6_K => q6_k(block, &mut codes),
            Self::Q8_0 => codes[..32].copy_from_slice(&block[2..34]),
        }
        codes
    }

    /// The f16 scale of a block, as it is stored, and the f16 minimum where there is one.
    pub(super) fn halves(self, block: &[u8]) -> [[u8; 2]; 2] {
        let at = if self == Self::Q6_K { 208 } else { 0 };
        [[block[at], block[at + 1]], [block[(at + 2) % block.len()], block[(at + 3) % block.len()]]]
    }
}

/// The lower halves of all bytes, then the upper ones.
fn halves(bytes: &[u8], codes: &mut [u8]) {
    for (i, byte) in bytes.iter().enumerate() {
        codes[i] = byte & 15;
        codes[i + bytes.len()] = byte >> 4;
    }
}

/// As `halves`, with bit i of `high` above code i, then `offset` subtracted.
fn fifth_bits(high: &[u8], low: &[u8], offset: u8, codes: &mut [u8]) {
    halves(low, codes);
    for (i, code) in codes[..32].iter_mut().enumerate() {
        *code = (*code | (high[i / 8] >> (i % 8) & 1) << 4).wrapping_sub(offset);
    }
}

/// As Q4_K, with 32 bytes of fifth bits before the halves: bit j of each belongs to run j of 32 codes.
fn q5_k(block: &[u8], codes: &mut [u8]) {
    let (high, low) = (&block[16..48], &block[48..176]);
    low.chunks_exact(32).zip(codes.chunks_exact_mut(64)).for_each(|(bytes, codes)| halves(bytes, codes));
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (high[i % 32] >> (i / 32) & 1) << 4;
    }
}

/// 128 bytes of lower halves, 64 bytes of upper bit pairs. Each half block of 128 codes is four runs of 32.
fn q6_k(block: &[u8], codes: &mut [u8]) {
    let (low, high) = (&block[..128], &block[128..192]);
    for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
        let (half, quarter) = (run / 4, run % 4);
        let low = &low[64 * half + 32 * (quarter % 2)..][..32];
        let high = &high[32 * half..][..32];
        for (i, code) in codes.iter_mut().enumerate() {
            *code = (low[i] >> (4 * (quarter / 2)) & 15 | (high[i] >> (2 * quarter) & 3) << 4).wrapping_sub(32);
        }
    }
}

/// The eight 6-bit scales and the eight 6-bit minima of a Q4_K or Q5_K block.
pub(super) fn pairs(block: &[u8]) -> [(u8, u8); 8] {
    let packed = &block[4..16];
    let high = |byte: u8| byte >> 6 << 4;
    std::array::from_fn(|i| match i {
        ..4 => (packed[i] & 63, packed[i + 4] & 63),
        _ => (packed[i + 4] & 15 | high(packed[i - 4]), packed[i + 4] >> 4 | high(packed[i])),
    })
}
