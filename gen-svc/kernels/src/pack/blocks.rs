//! GGML's block formats: the layout of a block in a file, and of a unit in a panel.
//!
//! Source of the formats: ggml's `ggml-common.h` (struct `block_*`) and `ggml-quants.c`
//! (`dequantize_row_*`).

/// GGML block formats that can be packed.
#[allow(non_camel_case_types)] // the spelling of ggml
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockFormat {
    IQ4_NL,
    IQ4_XS,
    Q3_K,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
}

/// The largest number of codes in a block.
pub(crate) const CODES: usize = 256;

/// How a panel stores codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codes {
    /// Two codes per byte.
    Nibbles,
    /// One unsigned code per byte.
    Unsigned,
    /// One signed code per byte.
    Signed,
}

/// How a panel stores the scales of 8 rows, and how a value is computed from a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scales {
    /// An f16 scale per row; value = scale * (code - offset).
    Scale { offset: u8 },
    /// An f16 scale per row, then an f16 minimum; value = scale * code + minimum.
    ScaleMinimum,
    /// A byte per row for the scale of each of 8 blocks, then the same for the minima. An f16 scale
    /// and an f16 minimum per row multiply these bytes; value = scale * code - minimum.
    Pairs,
    /// A signed byte per row for each of 16 half blocks. An f16 scale per row multiplies it; value
    /// = scale * code.
    Halves,
}

/// The sizes and the layout of a format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    /// Columns of a block in a file and of a unit in a panel: 32 or 256.
    pub(crate) columns: usize,
    /// Bytes of a block in a file.
    pub(crate) bytes: usize,
    pub(crate) codes: Codes,
    pub(crate) scales: Scales,
}

impl Spec {
    /// Returns the bytes of a unit's codes, for 8 rows.
    pub(crate) const fn code_bytes(&self) -> usize {
        match self.codes {
            Codes::Nibbles => 4 * self.columns,
            Codes::Unsigned | Codes::Signed => 8 * self.columns,
        }
    }

    /// Returns the bytes of a unit's scales, which follow its codes.
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
            Self::IQ4_NL => (32, 18, Signed, Scales::Scale { offset: 0 }),
            Self::IQ4_XS => (256, 136, Signed, Scales::Halves),
            Self::Q3_K => (256, 110, Signed, Scales::Halves),
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

    /// Extracts the codes of a block in a file, in the order of the columns, with the sign that the
    /// panel stores.
    pub(super) fn codes(self, block: &[u8]) -> [u8; CODES] {
        let mut codes = [0; CODES];
        match self {
            Self::IQ4_NL => uneven(&block[2..18], &mut codes),
            Self::IQ4_XS => {
                block[8..136].chunks_exact(16).zip(codes.chunks_exact_mut(32)).for_each(|(b, c)| uneven(b, c));
            }
            Self::Q3_K => q3_k(block, &mut codes),
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

    /// Returns the f16 scale of a block, as stored, and the f16 minimum if the format has one.
    pub(super) fn halves(self, block: &[u8]) -> [[u8; 2]; 2] {
        let at = match self {
            Self::Q3_K => 108,
            Self::Q6_K => 208,
            _ => 0,
        };
        [[block[at], block[at + 1]], [block[(at + 2) % block.len()], block[(at + 3) % block.len()]]]
    }
}

/// Returns the sixteen signed scales of a block with such scales. Others have zeros.
pub(super) fn half_scales(format: BlockFormat, block: &[u8]) -> [u8; 16] {
    let less_32 = |low: u8, high: u8| (low & 15 | (high & 3) << 4).wrapping_sub(32);
    std::array::from_fn(|i| match format {
        BlockFormat::Q6_K => block[192 + i],
        BlockFormat::Q3_K => less_32(block[96 + i % 8] >> (i / 8 * 4), block[104 + i % 4] >> (i / 4 * 2)),
        BlockFormat::IQ4_XS => less_32(block[4 + i / 4] >> (i / 2 % 2 * 4), block[2 + i / 8] >> (i / 2 % 4 * 2)),
        _ => 0,
    })
}

/// The values of the codes of IQ4_NL and IQ4_XS.
const UNEVEN: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Extracts codes as `halves` does, and replaces them by their values.
fn uneven(bytes: &[u8], codes: &mut [u8]) {
    halves(bytes, codes);
    codes[..2 * bytes.len()].iter_mut().for_each(|code| *code = UNEVEN[usize::from(*code)].cast_unsigned());
}

/// Extracts codes from 32 bytes of third bits, which are inverted, and 64 bytes of lower two bits. Bit j of the third
/// bits belongs to run j of 32 codes.
fn q3_k(block: &[u8], codes: &mut [u8]) {
    let (high, low) = (&block[..32], &block[32..96]);
    for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
        let low = &low[run / 4 * 32..][..32];
        for (i, code) in codes.iter_mut().enumerate() {
            *code = (low[i] >> (run % 4 * 2) & 3).wrapping_sub(if high[i] >> run & 1 == 0 { 4 } else { 0 });
        }
    }
}

/// Extracts the lower four bits of all bytes, then the upper four.
fn halves(bytes: &[u8], codes: &mut [u8]) {
    for (i, byte) in bytes.iter().enumerate() {
        codes[i] = byte & 15;
        codes[i + bytes.len()] = byte >> 4;
    }
}

/// Extracts codes as `halves` does, adds bit i of `high` as the fifth bit of code i, and subtracts
/// `offset`.
fn fifth_bits(high: &[u8], low: &[u8], offset: u8, codes: &mut [u8]) {
    halves(low, codes);
    for (i, code) in codes[..32].iter_mut().enumerate() {
        *code = (*code | (high[i / 8] >> (i % 8) & 1) << 4).wrapping_sub(offset);
    }
}

/// Extracts codes as for Q4_K. 32 bytes of fifth bits come first: bit j of each byte belongs to run
/// j of 32 codes.
fn q5_k(block: &[u8], codes: &mut [u8]) {
    let (high, low) = (&block[16..48], &block[48..176]);
    low.chunks_exact(32).zip(codes.chunks_exact_mut(64)).for_each(|(bytes, codes)| halves(bytes, codes));
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (high[i % 32] >> (i / 32) & 1) << 4;
    }
}

/// Extracts codes from 128 bytes of lower four bits and 64 bytes of upper two bits. Each half block
/// of 128 codes is four runs of 32.
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

/// Returns the eight 6-bit scales and the eight 6-bit minima of a Q4_K or Q5_K block.
pub(super) fn pairs(block: &[u8]) -> [(u8, u8); 8] {
    let packed = &block[4..16];
    let high = |byte: u8| byte >> 6 << 4;
    std::array::from_fn(|i| match i {
        ..4 => (packed[i] & 63, packed[i + 4] & 63),
        _ => (packed[i + 4] & 15 | high(packed[i - 4]), packed[i + 4] >> 4 | high(packed[i])),
    })
}
