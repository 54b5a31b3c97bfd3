//! The formats of weights in a file and in a matrix.

use super::blocks::BlockFormat;
use crate::error::{Error, product};
use crate::isa::LANES;

/// A number format, used in files and in panels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    F32,
    F16,
    Bf16,
    Block(BlockFormat),
}

impl Format {
    /// Returns the bytes of a row in a file. `None` if the row is no multiple of the block length,
    /// or if the size exceeds the address space.
    #[must_use]
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        let (length, bytes) = match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Block(block) => (block.spec().columns, block.spec().bytes),
        };
        if columns.is_multiple_of(length) { (columns / length).checked_mul(bytes) } else { None }
    }

    /// Returns the bytes of a panel: 8 rows.
    pub(super) fn panel_bytes(self, columns: usize) -> Result<usize, Error> {
        match self {
            Self::F32 => product(&[columns, LANES, 4]),
            Self::F16 => product(&[columns, LANES, 2]),
            Self::Bf16 => product(&[columns.div_ceil(2), LANES, 4]),
            Self::Block(block) => product(&[columns / block.spec().columns, block.spec().unit_bytes()]),
        }
    }

    /// Returns true if weights of this format are multiplied by integers, so that the input must be
    /// quantized.
    #[must_use]
    pub fn needs_integers(self) -> bool {
        matches!(self, Self::Block(_))
    }
}

/// Contiguous rows of a matrix, little-endian: the layout of a file, with the rows in the model's
/// order.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    pub format: Format,
    pub columns: usize,
    pub bytes: &'a [u8],
}

/// The format of a packed matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The source's format: exact.
    Keep,
    /// Exact.
    F32,
    /// Rounded to nearest.
    Bf16,
    /// 8 bits with a scale per 32 columns, as Q8_0.
    Int8,
    /// 4 bits with a scale and a minimum per 32 columns, as Q4_1.
    Int4,
}

impl Target {
    pub(super) fn format(self, source: Format) -> Format {
        match self {
            Self::Keep => source,
            Self::F32 => Format::F32,
            Self::Bf16 => Format::Bf16,
            Self::Int8 => Format::Block(BlockFormat::Q8_0),
            Self::Int4 => Format::Block(BlockFormat::Q4_1),
        }
    }
}
