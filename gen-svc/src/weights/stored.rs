//! Tensors in the format of their file.

use std::ops::Range;

use tandem_model_files::FileBytes;
use tandem_model_files::gguf::GgmlType;

use super::quant;
use crate::error::Error;

/// The tensors of a model's files, in any format.
pub(super) trait TensorSource: std::fmt::Debug + Send + Sync {
    /// Returns a tensor by its name in transformers.
    fn stored(&self, name: &str) -> Result<Stored<'_>, Error>;
}

/// A tensor in its file.
#[derive(Debug, Clone)]
pub struct Stored<'a> {
    /// The name in the file.
    pub name: String,
    /// The type of the elements: blocks of values along the last dimension.
    pub dtype: GgmlType,
    /// The dimensions, outermost first.
    pub shape: Vec<usize>,
    /// The data in the file. Its length follows from shape and dtype.
    pub bytes: FileBytes<'a>,
    /// The order of the rows.
    pub order: RowOrder,
}

/// The order in which a tensor's rows are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    /// The model's order.
    AsIs,
    /// Within each of `heads` heads of D rows, row i + D/2 follows row i, so that the two rows of a
    /// rotated pair are adjacent.
    Interleaved {
        /// The number of heads.
        heads: usize,
    },
}

impl Stored<'_> {
    /// Returns true if the elements are floats, not quantized blocks.
    #[must_use]
    pub fn is_float(&self) -> bool {
        matches!(self.dtype, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16)
    }

    /// Reads the bytes of a range of rows. The rows are in the model's order.
    ///
    /// # Errors
    /// The file cannot be read, or was changed.
    pub fn rows(&self, rows: Range<usize>) -> Result<Vec<u8>, Error> {
        let count = self.row_count();
        let size = self.bytes.len() / count;
        if self.order == RowOrder::AsIs {
            return self.read(&self.bytes.part(rows.start * size..rows.end * size));
        }
        let whole = self.read(&self.bytes)?;
        let mut taken = Vec::with_capacity(rows.len() * size);
        rows.for_each(|row| taken.extend(&whole[self.order.stored(row, count) * size..][..size]));
        Ok(taken)
    }

    /// Reads the data, in the file's order.
    ///
    /// # Errors
    /// The file cannot be read, or was changed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        self.read(&self.bytes)
    }

    /// Returns all values, row by row in the model's order.
    ///
    /// # Errors
    /// The type cannot be read; the file cannot be read, or was changed.
    pub fn to_f32(&self) -> Result<Vec<f32>, Error> {
        let bytes = match self.order {
            RowOrder::AsIs => self.to_bytes()?,
            RowOrder::Interleaved { .. } => self.rows(0..self.row_count())?,
        };
        let mut values = vec![0.0; self.shape.iter().product()];
        quant::dequantize_into(self.dtype, &bytes, &mut values).ok_or_else(|| self.unreadable())?;
        Ok(values)
    }

    fn row_count(&self) -> usize {
        self.shape.first().copied().unwrap_or(1).max(1)
    }

    fn read(&self, bytes: &FileBytes<'_>) -> Result<Vec<u8>, Error> {
        bytes.read().map_err(|source| Error::TensorRead { name: self.name.clone(), source })
    }

    /// Checks the tensor against the shape that the model expects.
    ///
    /// # Errors
    /// The tensor has another shape, its rows cannot have its order, or its type cannot be read.
    pub fn check(&self, shape: &[usize]) -> Result<(), Error> {
        if self.shape != shape || !self.order.fits(shape.first().copied().unwrap_or(0)) {
            let whole = |shape: &[usize]| shape.iter().map(|&dim| dim as i64).collect();
            let (expected, found) = (whole(shape), whole(&self.shape));
            return Err(Error::TensorShape { name: self.name.clone(), expected, found });
        }
        if quant::is_readable(self.dtype) { Ok(()) } else { Err(self.unreadable()) }
    }

    fn unreadable(&self) -> Error {
        Error::TensorType { name: self.name.clone(), found: self.dtype.to_string() }
    }
}

impl RowOrder {
    /// Returns true if a tensor of `count` rows can have this order.
    fn fits(self, count: usize) -> bool {
        match self {
            Self::AsIs => true,
            Self::Interleaved { heads } => {
                heads > 0 && count.is_multiple_of(heads) && (count / heads).is_multiple_of(2)
            }
        }
    }

    /// Returns the index of a model's row among `count` stored rows.
    fn stored(self, row: usize, count: usize) -> usize {
        match self {
            Self::AsIs => row,
            Self::Interleaved { heads } => {
                let size = count / heads;
                let (head, row) = (row / size, row % size);
                head * size + row % (size / 2) * 2 + row / (size / 2)
            }
        }
    }
}
