//! The positions of a row's numbers in a panel. Rows are written from a file's bytes, and can be
//! read back.

use super::blocks::{BlockFormat, CODES, Codes, Scales, Spec, half_scales, pairs};
use super::format::Format;
use crate::half::{bf16_to_f32, f16_to_f32};
use crate::isa::LANES;

/// Writes a row, in the layout of a file, to its positions.
pub(super) fn write_row(format: Format, panel: &mut [u8], row: usize, raw: &[u8]) {
    match format {
        Format::F32 => write_elements::<4>(panel, row, raw),
        Format::F16 => write_elements::<2>(panel, row, raw),
        Format::Bf16 => write_pairs(panel, row, raw),
        Format::Block(block) => {
            let spec = block.spec();
            for (unit, raw) in panel.chunks_exact_mut(spec.unit_bytes()).zip(raw.chunks_exact(spec.bytes)) {
                let (codes, scales) = unit.split_at_mut(spec.code_bytes());
                write_codes(&spec, codes, row, &block.codes(raw));
                write_scales(block, scales, row, raw);
            }
        }
    }
}

/// Reads a row: \[columns\].
pub(super) fn read_row(format: Format, panel: &[u8], row: usize, out: &mut [f32]) {
    match format {
        Format::F32 => read_elements(panel, row, out, f32::from_le_bytes),
        Format::F16 => read_elements(panel, row, out, |bytes| f16_to_f32(u16::from_le_bytes(bytes))),
        Format::Bf16 => read_pairs(panel, row, out),
        Format::Block(block) => {
            let spec = block.spec();
            for (unit, out) in panel.chunks_exact(spec.unit_bytes()).zip(out.chunks_exact_mut(spec.columns)) {
                read_unit(&spec, unit, row, out);
            }
        }
    }
}

/// Writes floats: \[columns\]\[8 rows\].
fn write_elements<const SIZE: usize>(panel: &mut [u8], row: usize, raw: &[u8]) {
    for (lanes, value) in panel.chunks_exact_mut(LANES * SIZE).zip(raw.chunks_exact(SIZE)) {
        lanes[row * SIZE..][..SIZE].copy_from_slice(value);
    }
}

fn read_elements<const SIZE: usize>(panel: &[u8], row: usize, out: &mut [f32], value: impl Fn([u8; SIZE]) -> f32) {
    let elements = panel.as_chunks::<SIZE>().0;
    for (out, lanes) in out.iter_mut().zip(elements.chunks_exact(LANES)) {
        *out = value(lanes[row]);
    }
}

/// Writes pairs of columns: \[columns / 2\]\[8 rows\]\[2\]. If the number of columns is odd, a zero
/// follows the last column.
fn write_pairs(panel: &mut [u8], row: usize, raw: &[u8]) {
    for (lanes, pair) in panel.as_chunks_mut::<4>().0.chunks_exact_mut(LANES).zip(raw.chunks(4)) {
        lanes[row][..pair.len()].copy_from_slice(pair);
    }
}

fn read_pairs(panel: &[u8], row: usize, out: &mut [f32]) {
    for (out, lanes) in out.chunks_mut(2).zip(panel.as_chunks::<4>().0.chunks_exact(LANES)) {
        for (out, bytes) in out.iter_mut().zip(lanes[row].as_chunks().0) {
            *out = bf16_to_f32(u16::from_le_bytes(*bytes));
        }
    }
}

/// Returns the index of the byte in a unit's codes that has the code of a row's column. Also
/// returns the index of the code's lowest bit.
fn place(spec: &Spec, row: usize, column: usize) -> (usize, u32) {
    let within = LANES / 2 * row + column % 4;
    match spec.codes {
        Codes::Nibbles => (column / 8 * 32 + within, (column % 8 / 4 * 4) as u32),
        Codes::Unsigned | Codes::Signed => (column / 4 * 32 + within, 0),
    }
}

fn write_codes(spec: &Spec, out: &mut [u8], row: usize, codes: &[u8; CODES]) {
    for (column, code) in codes[..spec.columns].iter().enumerate() {
        let (byte, shift) = place(spec, row, column);
        out[byte] |= code << shift;
    }
}

fn write_scales(format: BlockFormat, out: &mut [u8], row: usize, raw: &[u8]) {
    let [scale, minimum] = format.halves(raw);
    let mut write_half = |start: usize, half: [u8; 2]| out[start + 2 * row..][..2].copy_from_slice(&half);
    match format.spec().scales {
        Scales::Scale { .. } => write_half(0, scale),
        Scales::ScaleMinimum => {
            write_half(0, scale);
            write_half(16, minimum);
        }
        Scales::Pairs => {
            write_half(128, scale);
            write_half(144, minimum);
            for (block, (scale, minimum)) in pairs(raw).into_iter().enumerate() {
                out[LANES * block + row] = scale;
                out[64 + LANES * block + row] = minimum;
            }
        }
        Scales::Halves => {
            write_half(128, scale);
            for (half, scale) in half_scales(format, raw).into_iter().enumerate() {
                out[LANES * half + row] = scale;
            }
        }
    }
}

/// Rounds each product and each sum, as ggml's own dequantization does.
fn read_unit(spec: &Spec, unit: &[u8], row: usize, out: &mut [f32]) {
    let (codes, scales) = unit.split_at(spec.code_bytes());
    let half = |start: usize| f16_to_f32(u16::from_le_bytes([scales[start + 2 * row], scales[start + 2 * row + 1]]));
    for (column, out) in out.iter_mut().enumerate() {
        let (byte, shift) = place(spec, row, column);
        let code = match spec.codes {
            Codes::Nibbles => f32::from(codes[byte] >> shift & 15),
            Codes::Unsigned => f32::from(codes[byte]),
            Codes::Signed => f32::from(codes[byte].cast_signed()),
        };
        let per = |start: usize, length: usize| scales[start + LANES * (column / length) + row];
        *out = match spec.scales {
            Scales::Scale { offset } => half(0) * (code - f32::from(offset)),
            Scales::ScaleMinimum => half(0) * code + half(16),
            Scales::Pairs => half(128) * f32::from(per(0, 32)) * code - half(144) * f32::from(per(64, 32)),
            Scales::Halves => half(128) * f32::from(per(0, 16).cast_signed()) * code,
        };
    }
}
