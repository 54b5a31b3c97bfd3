//! Decodes GGML block formats to f32, to the bit as the reference reader: each product and sum is
//! rounded, in the same order.

use tandem_model_files::gguf::GgmlType;

/// Decodes one block.
type Decode = fn(block: &[u8], out: &mut [f32]);

/// Every type that can be read. A model with a tensor of another type is refused.
const DECODERS: &[(GgmlType, Decode)] = &[
    (GgmlType::F32, f32_block),
    (GgmlType::F16, f16_block),
    (GgmlType::BF16, bf16_block),
    (GgmlType::Q4_0, q4_0),
    (GgmlType::Q4_1, q4_1),
    (GgmlType::Q5_0, q5_0),
    (GgmlType::Q5_1, q5_1),
    (GgmlType::Q8_0, q8_0),
    (GgmlType::Q3_K, q3_k),
    (GgmlType::Q4_K, q4_k),
    (GgmlType::Q5_K, q5_k),
    (GgmlType::Q6_K, q6_k),
    (GgmlType::IQ4_NL, iq4_nl),
    (GgmlType::IQ4_XS, iq4_xs),
];

/// Returns true if a type can be read.
#[must_use]
pub fn is_readable(dtype: GgmlType) -> bool {
    DECODERS.iter().any(|(known, _)| *known == dtype)
}

/// Decodes a tensor's data, which is whole blocks. `None` for a type that cannot be read.
#[must_use]
pub fn dequantize(dtype: GgmlType, data: &[u8]) -> Option<Vec<f32>> {
    let mut values = vec![0.0; data.len() / dtype.block_bytes() as usize * dtype.block_len() as usize];
    dequantize_into(dtype, data, &mut values)?;
    Some(values)
}

/// Decodes whole blocks into `out`. `None` for a type that cannot be read.
#[must_use]
pub fn dequantize_into(dtype: GgmlType, data: &[u8], out: &mut [f32]) -> Option<()> {
    let (_, decode) = DECODERS.iter().find(|(known, _)| *known == dtype)?;
    let (length, bytes) = (dtype.block_len() as usize, dtype.block_bytes() as usize);
    for (block, out) in data.chunks_exact(bytes).zip(out.chunks_exact_mut(length)) {
        decode(block, out);
    }
    Some(())
}

/// The numbers that are checked at once, without a branch between them.
const CHECKED: usize = 1 << 12;

/// The exponents of numbers that are NaN or infinite.
const F32_EXPONENT: u32 = 0x7f80_0000;
const F16_EXPONENT: u16 = 0x7c00;
const BF16_EXPONENT: u16 = 0x7f80;

/// Returns a number of whole blocks that is NaN or infinite: a value of a float type, or the scale or the minimum of a
/// block, whose other numbers are whole.
#[must_use]
pub fn not_finite(dtype: GgmlType, data: &[u8]) -> Option<f32> {
    let is_f16 = |bytes| u16::from_le_bytes(bytes) & F16_EXPONENT == F16_EXPONENT;
    let is_bf16 = |bytes| u16::from_le_bytes(bytes) & BF16_EXPONENT == BF16_EXPONENT;
    let scales: &[usize] = match dtype {
        GgmlType::F32 => {
            let is_f32 = |bytes| u32::from_le_bytes(bytes) & F32_EXPONENT == F32_EXPONENT;
            return first(data, is_f32).map(f32::from_le_bytes);
        }
        GgmlType::F16 => return first(data, is_f16).map(|bytes| f16(&bytes)),
        GgmlType::BF16 => return first(data, is_bf16).map(|bytes| half::bf16::from_le_bytes(bytes).to_f32()),
        GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 | GgmlType::IQ4_NL | GgmlType::IQ4_XS => &[0],
        GgmlType::Q3_K => &[108],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[0, 2],
        GgmlType::Q6_K => &[208],
        _ => return None,
    };
    let blocks = data.chunks_exact(dtype.block_bytes() as usize);
    let mut numbers = blocks.flat_map(|block| scales.iter().map(|&at| [block[at], block[at + 1]]));
    numbers.find(|bytes| is_f16(*bytes)).map(|bytes| f16(&bytes))
}

/// Returns the bytes of the first number that is `wrong`.
fn first<const N: usize>(data: &[u8], wrong: impl Fn([u8; N]) -> bool) -> Option<[u8; N]> {
    let (numbers, _) = data.as_chunks::<N>();
    let mut parts = numbers.chunks(CHECKED);
    let part = parts.find(|part| part.iter().fold(false, |found, bytes| found | wrong(*bytes)))?;
    part.iter().find(|bytes| wrong(**bytes)).copied()
}

fn f32_block(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
}

fn f16_block(block: &[u8], out: &mut [f32]) {
    out[0] = f16(block);
}

fn bf16_block(block: &[u8], out: &mut [f32]) {
    out[0] = half::bf16::from_le_bytes([block[0], block[1]]).to_f32();
}

/// Decodes Q4_0: scale, then 16 bytes. The low halves are the first 16 values.
fn q4_0(block: &[u8], out: &mut [f32]) {
    let scale = f16(block);
    for (i, byte) in block[2..18].iter().enumerate() {
        out[i] = scale * (f32::from(byte & 15) - 8.0);
        out[i + 16] = scale * (f32::from(byte >> 4) - 8.0);
    }
}

/// Decodes Q4_1: scale and minimum, then as Q4_0 but unsigned.
fn q4_1(block: &[u8], out: &mut [f32]) {
    let (scale, minimum) = (f16(block), f16(&block[2..]));
    for (i, byte) in block[4..20].iter().enumerate() {
        out[i] = scale * f32::from(byte & 15) + minimum;
        out[i + 16] = scale * f32::from(byte >> 4) + minimum;
    }
}

/// Decodes Q5_0: scale, 32 fifth bits, then as Q4_0.
fn q5_0(block: &[u8], out: &mut [f32]) {
    let scale = f16(block);
    let high = [block[2], block[3], block[4], block[5]];
    fifth_bits(high, &block[6..22], out, |value| scale * (value - 16.0));
}

/// Decodes Q5_1: scale and minimum, 32 fifth bits, then as Q4_1.
fn q5_1(block: &[u8], out: &mut [f32]) {
    let (scale, minimum) = (f16(block), f16(&block[2..]));
    let high = [block[4], block[5], block[6], block[7]];
    fifth_bits(high, &block[8..24], out, |value| scale * value + minimum);
}

/// Puts bit i of `high` above half i of `low`: first all low halves, then all high ones.
fn fifth_bits(high: [u8; 4], low: &[u8], out: &mut [f32], value: impl Fn(f32) -> f32) {
    let high = u32::from_le_bytes(high);
    let bit = |i: usize| ((high >> i & 1) << 4) as u8;
    for (i, byte) in low.iter().enumerate() {
        out[i] = value(f32::from(byte & 15 | bit(i)));
        out[i + 16] = value(f32::from(byte >> 4 | bit(i + 16)));
    }
}

/// Decodes Q8_0: scale, then 32 signed bytes.
fn q8_0(block: &[u8], out: &mut [f32]) {
    let scale = f16(block);
    for (value, byte) in out.iter_mut().zip(&block[2..34]) {
        *value = f32::from(byte.cast_signed()) * scale;
    }
}

/// Decodes Q3_K: 32 bytes of inverted third bits, 64 bytes of lower bit pairs, 16 scales of 6 bits, scale. Bit j of
/// each of the first bytes belongs to run j of 32 values.
fn q3_k(block: &[u8], out: &mut [f32]) {
    let (high, low, packed, scale) = (&block[..32], &block[32..96], &block[96..108], f16(&block[108..]));
    let scales: [f32; 16] = std::array::from_fn(|i| {
        let low = packed[i % 8] >> (i / 8 * 4) & 15;
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        scale * (f32::from(low | high << 4) - 32.0)
    });
    for (run, values) in out.chunks_exact_mut(32).enumerate() {
        let low = &low[run / 4 * 32..][..32];
        for (i, value) in values.iter_mut().enumerate() {
            let offset = if high[i] >> run & 1 == 0 { 4.0 } else { 0.0 };
            *value = scales[2 * run + i / 16] * (f32::from(low[i] >> (run % 4 * 2) & 3) - offset);
        }
    }
}

/// Decodes Q4_K: two scales, eight 6-bit scale and minimum pairs, then 4 groups of 32 bytes: low
/// halves, high halves.
fn q4_k(block: &[u8], out: &mut [f32]) {
    let pairs = k_scales(block);
    for (group, bytes) in block[16..144].chunks_exact(32).enumerate() {
        for (half, shift) in [0, 4].into_iter().enumerate() {
            let (scale, minimum) = pairs[2 * group + half];
            let values = &mut out[64 * group + 32 * half..][..32];
            for (value, byte) in values.iter_mut().zip(bytes) {
                *value = scale * f32::from(byte >> shift & 15) - minimum;
            }
        }
    }
}

/// Decodes Q5_K: as Q4_K, with 32 bytes of fifth bits before the halves: bit j of each belongs to
/// run j of 32 values.
fn q5_k(block: &[u8], out: &mut [f32]) {
    let pairs = k_scales(block);
    let (high, low) = (&block[16..48], &block[48..176]);
    for (run, values) in out.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = pairs[run];
        let bytes = &low[run / 2 * 32..][..32];
        for ((value, byte), high) in values.iter_mut().zip(bytes).zip(high) {
            let half = byte >> (run % 2 * 4) & 15;
            *value = scale * f32::from(half | (high >> run & 1) << 4) - minimum;
        }
    }
}

/// Returns the eight (scale, minimum) pairs of a Q4_K or Q5_K block, both already times the block's
/// own.
fn k_scales(block: &[u8]) -> [(f32, f32); 8] {
    let (scale, minimum) = (f16(block), f16(&block[2..]));
    let packed = &block[4..16];
    std::array::from_fn(|i| {
        let (s, m) = if i < 4 {
            (packed[i] & 63, packed[i + 4] & 63)
        } else {
            let high = |byte: u8| byte >> 6 << 4;
            (packed[i + 4] & 15 | high(packed[i - 4]), packed[i + 4] >> 4 | high(packed[i]))
        };
        (scale * f32::from(s), minimum * f32::from(m))
    })
}

/// Decodes Q6_K: 128 bytes of low halves, 64 bytes of upper bit pairs, 16 signed scales, scale.
/// Each half block of 128 values is four runs of 32.
fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales, scale) = (&block[..128], &block[128..192], &block[192..208], f16(&block[208..]));
    for (run, values) in out.chunks_exact_mut(32).enumerate() {
        let (half, quarter) = (run / 4, run % 4);
        let low = &low[64 * half + 32 * (quarter % 2)..][..32];
        let high = &high[32 * half..][..32];
        for (i, value) in values.iter_mut().enumerate() {
            let bits = low[i] >> (4 * (quarter / 2)) & 15 | (high[i] >> (2 * quarter) & 3) << 4;
            let scale = scale * f32::from(scales[2 * run + i / 16].cast_signed());
            *value = scale * (f32::from(bits) - 32.0);
        }
    }
}

/// The values of the codes of IQ4_NL and IQ4_XS.
const UNEVEN: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Decodes IQ4_NL: as Q4_0, with uneven values.
fn iq4_nl(block: &[u8], out: &mut [f32]) {
    uneven(f16(block), &block[2..18], out);
}

/// Decodes IQ4_XS: scale, eight scales of 6 bits (the upper two bits of all come first), then as IQ4_NL.
fn iq4_xs(block: &[u8], out: &mut [f32]) {
    let (scale, high) = (f16(block), u16::from_le_bytes([block[2], block[3]]));
    for (run, (bytes, values)) in block[8..136].chunks_exact(16).zip(out.chunks_exact_mut(32)).enumerate() {
        let low = block[4 + run / 2] >> (run % 2 * 4) & 15;
        let whole = f32::from(low | ((high >> (2 * run) & 3) as u8) << 4);
        uneven(scale * (whole - 32.0), bytes, values);
    }
}

fn uneven(scale: f32, bytes: &[u8], out: &mut [f32]) {
    let value = |code: u8| scale * f32::from(UNEVEN[usize::from(code)]);
    for (i, byte) in bytes.iter().enumerate() {
        out[i] = value(byte & 15);
        out[i + 16] = value(byte >> 4);
    }
}

/// Returns the half-precision number at the start of `bytes`. Exact.
fn f16(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}
