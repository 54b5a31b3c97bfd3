//! Weights in the layout of the kernels: panels of 8 rows, interleaved so that one vector holds the
//! same column, or pair of columns, of all 8 rows.
//!
//! A panel is one stream of memory. Per 32 columns (256 for the K formats) it holds the codes of 8
//! rows, then their scales. Packing changes the order of the values and keeps each value to the
//! bit.

mod blocks;
mod format;
mod panel;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

pub use blocks::BlockFormat;
pub(crate) use blocks::{Codes, Scales, Spec};
pub use format::{Format, Rows, Target};

use crate::buffer::Buffer;
use crate::error::{Error, expect, expect_below, expect_multiple, product};
use crate::isa::{LANES, Pair, least_exponent};
use crate::kernels::Kernels;
use crate::quantize;

impl Kernels {
    /// Packs rows of weights on all threads.
    pub fn pack(&self, source: &Rows<'_>, target: Target) -> Result<Matrix, Error> {
        Matrix::pack(self, source, target)
    }
}

/// A matrix in panels. Rows that only fill the last panel are zero.
#[derive(Debug)]
pub struct Matrix {
    format: Format,
    rows: usize,
    columns: usize,
    panel_bytes: usize,
    buffer: Buffer,
    /// The [`least_exponent`] of each panel of bf16. Empty for other formats.
    least_exponents: Box<[u16]>,
}

impl Matrix {
    /// Packs rows on all threads.
    pub(crate) fn pack(kernels: &Kernels, source: &Rows<'_>, target: Target) -> Result<Self, Error> {
        let row_bytes = checked_row_bytes(source)?;
        let rows = source.bytes.len() / row_bytes;
        let format = target.format(source.format);
        if let Format::Block(block) = format {
            expect_multiple(BLOCK_COLUMNS, block.spec().columns, source.columns)?;
        }
        let panel_bytes = format.panel_bytes(source.columns)?;
        let bytes = product(&[rows.div_ceil(LANES), panel_bytes])?;
        let mut buffer = kernels.weight_memory(bytes)?;
        let panels = if format == Format::Bf16 { rows.div_ceil(LANES) } else { 0 };
        let least_exponents: Vec<AtomicU16> = (0..panels).map(|_| AtomicU16::new(0)).collect();
        let pack = |panel: usize, out: &mut [u8]| {
            for row in (0..LANES).take_while(|row| LANES * panel + row < rows) {
                let raw = &source.bytes[(LANES * panel + row) * row_bytes..][..row_bytes];
                panel::write_row(format, out, row, &convert(source.format, format, source.columns, raw));
            }
            if format == Format::Bf16 {
                let numbers = out.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
                least_exponents[panel].store(least_exponent(numbers), Relaxed);
            }
        };
        kernels.team.run_on_chunks(&mut buffer.as_mut_slice()[..bytes], panel_bytes, &pack);
        let least_exponents = least_exponents.into_iter().map(AtomicU16::into_inner).collect();
        Ok(Self { format, rows, columns: source.columns, panel_bytes, buffer, least_exponents })
    }

    /// Returns the number of rows: the outputs of a product.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns: the inputs of a product.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the size in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.panels() * self.panel_bytes
    }

    /// Reads one row as numbers: \[columns\].
    pub fn read_row(&self, row: usize, out: &mut [f32]) -> Result<(), Error> {
        expect_below("row", self.rows, row)?;
        expect("length of a row", self.columns, out.len())?;
        self.unpack_row(row, out);
        Ok(())
    }

    pub(crate) fn unpack_row(&self, row: usize, out: &mut [f32]) {
        panel::read_row(self.format, self.panel(row / LANES), row % LANES, out);
    }

    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    pub(crate) fn panel(&self, panel: usize) -> &[u8] {
        &self.buffer.as_slice()[panel * self.panel_bytes..][..self.panel_bytes]
    }

    /// Returns a panel of bf16: \[columns / 2\]\[8 rows\]. If the number of columns is odd, the last
    /// pairs end with zeros.
    pub(crate) fn pairs(&self, panel: usize) -> &[[Pair; LANES]] {
        let elements = self.columns.div_ceil(2) * 2 * LANES;
        self.buffer.as_slice::<u16>()[panel * elements..][..elements].as_chunks().0.as_chunks().0
    }

    /// Returns the [`least_exponent`] of a panel of bf16.
    pub(crate) fn least_exponent(&self, panel: usize) -> u16 {
        self.least_exponents[panel]
    }

    /// Returns a panel of floats: \[columns\]\[8 rows\].
    pub(crate) fn floats<T: crate::buffer::Plain>(&self, panel: usize) -> &[[T; LANES]] {
        let elements = self.columns * LANES;
        self.buffer.as_slice::<T>()[panel * elements..][..elements].as_chunks().0
    }
}

/// The subject of the error for a row that is no multiple of the block length.
const BLOCK_COLUMNS: &str = "columns of a block-format matrix";

/// Returns the bytes of a source row. Fails if the source's sizes disagree.
fn checked_row_bytes(source: &Rows<'_>) -> Result<usize, Error> {
    match source.format {
        Format::Block(block) => expect_multiple(BLOCK_COLUMNS, block.spec().columns, source.columns)?,
        _ => expect_multiple("columns of a matrix", 1, source.columns)?,
    }
    let row_bytes = source.format.row_bytes(source.columns).ok_or(Error::Memory { bytes: None })?;
    expect_multiple("bytes of a matrix", row_bytes, source.bytes.len())?;
    Ok(row_bytes)
}

/// Returns a row in the file layout of the target format.
fn convert(from: Format, to: Format, columns: usize, raw: &[u8]) -> Cow<'_, [u8]> {
    if from == to {
        return Cow::Borrowed(raw);
    }
    let mut values = vec![0.0; columns];
    decode(from, raw, &mut values);
    Cow::Owned(encode(to, &values))
}

/// Decodes a row from its file layout.
fn decode(format: Format, raw: &[u8], out: &mut [f32]) {
    // Cannot fail: the columns of a source row have been checked.
    let bytes = format.panel_bytes(out.len()).unwrap_or_default();
    let mut panel = vec![0; bytes];
    panel::write_row(format, &mut panel, 0, raw);
    panel::read_row(format, &panel, 0, out);
}

/// Encodes a row in its file layout. Called only with formats that a target has.
fn encode(format: Format, values: &[f32]) -> Vec<u8> {
    match format {
        Format::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Format::F16 => values.iter().flat_map(|value| crate::half::f32_to_f16(*value).to_le_bytes()).collect(),
        Format::Bf16 => values.iter().flat_map(|value| crate::half::f32_to_bf16(*value).to_le_bytes()).collect(),
        Format::Block(BlockFormat::Q8_0) => values.as_chunks().0.iter().flat_map(quantize::q8_0).collect(),
        Format::Block(_) => values.as_chunks().0.iter().flat_map(quantize::q4_1).collect(),
    }
}
