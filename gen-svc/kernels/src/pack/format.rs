//! How weights are stored: in a file, and in a matrix.

use super::blocks::BlockFormat;
use crate::error::{Error, product};
use crate::isa::LANES;

/// How numbers are stored, in a file and in panels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    F32,
    F16,
    Bf16,
    Block(BlockFormat),
}

impl Format {
    /// Bytes of a row in a file. None if the format's blocks do not divide the row, or it is beyond what can be addressed.
    #[must_use]
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        let (length, bytes) = match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Block(block) => (block.spec().columns, block.spec().bytes),
        };
        if columns.is_multiple_of(length) { (columns / length).checked_mul(bytes) } else { None }
    }

    /// Bytes of a panel: 8 rows.
    pub(super) fn panel_bytes(self, columns: usize) -> Result<usize, Error> {
        match self {
            Self::F32 => product(&[columns, LANES, 4]),
            Self::F16 | Self::Bf16 => product(&[columns, LANES, 2]),
            Self::Block(block) => product(&[columns / block.spec().columns, block.spec().unit_bytes()]),
        }
    }

    /// Weights of this format are multiplied by integers, so that input has to be quantized.
    #[must_use]
    pub fn needs_integers(self) -> bool {
        matches!(self, Self::Block(_))
    }
}

/// Rows of a matrix as a file has them, one behind the other, little-endian.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    pub format: Format,
    pub columns: usize,
    pub bytes: &'a [u8],
    pub order: RowOrder,
}

/// Which row of the source comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    AsIs,
    /// Per head, the source alternates between its first and second half of the rows, as GGUF stores query and key projections
    /// of Llama's relatives. Panels get first halves first, as rotary embeddings here expect.
    Interleaved {
        heads: usize,
    },
}

impl RowOrder {
    /// The source's number of a matrix's row.
    pub(super) fn source(self, row: usize, rows: usize) -> usize {
        match self {
            Self::AsIs => row,
            Self::Interleaved { heads } => {
                let size = rows / heads;
                let (head, within) = (row / size, row % size);
                head * size + within % (size / 2) * 2 + within / (size / 2)
            }
        }
    }
}

/// What to make of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The source's own format: exact.
    Keep,
    /// Exact.
    F32,
    /// Rounded to the nearest.
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
