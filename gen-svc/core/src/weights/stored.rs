//! Tensors in the format of their file.

use std::ops::Range;

use tandem_model_files::FileBytes;
use tandem_model_files::gguf::GgmlType;

use super::progress::Progress;
use super::quant;
use crate::error::LoadError;

/// The tensors of a model's files, in any format.
pub(super) trait TensorSource: std::fmt::Debug + Send + Sync {
    /// Returns a tensor by its name in transformers.
    fn stored(&self, name: &str) -> Result<Stored<'_>, LoadError>;

    /// Returns whether the module `module` has a bias. `None`: the config decides.
    fn bias(&self, _module: &str) -> Option<bool> {
        None
    }

    /// Returns the bytes of all tensors.
    fn bytes(&self) -> u64;

    /// Returns the names in the file of the tensors that are no settings, without those of a second file.
    fn names(&self) -> Vec<String>;

    /// Returns the names of the tensors in a second file, which has a tower.
    fn tower_names(&self) -> Vec<String> {
        Vec::new()
    }
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
    /// Counts the bytes that are read, if the load is reported.
    pub(super) progress: Option<&'a Progress>,
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

impl<'a> Stored<'a> {
    /// Returns a tensor whose reads are not reported.
    #[must_use]
    pub fn new(name: String, dtype: GgmlType, shape: &[usize], bytes: FileBytes<'a>, order: RowOrder) -> Self {
        Self { name, dtype, shape: shape.to_vec(), bytes, order, progress: None }
    }
    /// Returns true if the elements are floats, not quantized blocks.
    #[must_use]
    pub fn is_float(&self) -> bool {
        matches!(self.dtype, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16)
    }

    /// Reads the bytes of a range of rows. The rows are in the model's order.
    ///
    /// # Errors
    /// The file cannot be read, or was changed; [`LoadError::TensorNotFinite`].
    pub fn rows(&self, rows: Range<usize>) -> Result<Vec<u8>, LoadError> {
        let (count, size) = (self.row_count(), self.bytes.len() / self.row_count());
        if self.order == RowOrder::AsIs && rows == (0..count) {
            return self.read(&self.bytes); // also blocks that contain several rows
        }
        let group = self.order.group(count);
        let stored = rows.start / group * group..rows.end.next_multiple_of(group);
        let bytes = self.read(&self.bytes.part(stored.start * size..stored.end * size))?;
        if self.order == RowOrder::AsIs {
            return Ok(bytes);
        }
        let mut taken = Vec::with_capacity(rows.len() * size);
        rows.for_each(|row| taken.extend(&bytes[(self.order.stored(row, count) - stored.start) * size..][..size]));
        Ok(taken)
    }

    /// Returns the values of a range of rows, row by row in the model's order.
    ///
    /// # Errors
    /// The type cannot be read; the file cannot be read, or was changed.
    pub fn floats(&self, rows: Range<usize>) -> Result<Vec<f32>, LoadError> {
        self.values(&self.rows(rows.clone())?, rows.len() * self.columns())
    }

    /// Returns all values, row by row in the model's order.
    ///
    /// # Errors
    /// The type cannot be read; the file cannot be read, or was changed.
    pub fn to_f32(&self) -> Result<Vec<f32>, LoadError> {
        self.values(&self.rows(0..self.row_count())?, self.shape.iter().product())
    }

    fn values(&self, bytes: &[u8], count: usize) -> Result<Vec<f32>, LoadError> {
        let mut values = vec![0.0; count];
        quant::dequantize_into(self.dtype, bytes, &mut values).ok_or_else(|| self.unreadable())?;
        Ok(values)
    }

    /// Returns the number of rows: the first dimension, or 1 for a single value.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.shape.first().copied().unwrap_or(1).max(1)
    }

    /// Returns the number of values of a row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Reads some bytes. The check of their values takes about a tenth of the time of reading them.
    fn read(&self, bytes: &FileBytes<'_>) -> Result<Vec<u8>, LoadError> {
        let read = bytes.read().map_err(|source| LoadError::TensorRead { name: self.name.clone(), source })?;
        if let Some(found) = quant::not_finite(self.dtype, &read) {
            return Err(LoadError::TensorNotFinite { name: self.name.clone(), found });
        }
        if let Some(progress) = self.progress {
            progress.add(read.len());
        }
        Ok(read)
    }

    /// Returns the tensor in the shape that the model expects. As in llama.cpp, the file may have outer dimensions of 1
    /// in addition.
    ///
    /// # Errors
    /// The tensor has another shape, its rows cannot have its order, or its type cannot be read.
    pub fn shaped(self, shape: &[usize]) -> Result<Self, LoadError> {
        let is_same = self.shape.strip_suffix(shape).is_some_and(|outer| outer.iter().all(|size| *size == 1));
        if !is_same || !self.order.fits(shape.first().copied().unwrap_or(0)) {
            let whole = |shape: &[usize]| shape.iter().map(|&dim| dim as i64).collect();
            let (expected, found) = (whole(shape), whole(&self.shape));
            return Err(LoadError::TensorShape { name: self.name.clone(), expected, found });
        }
        if quant::is_readable(self.dtype) { Ok(Self { shape: shape.to_vec(), ..self }) } else { Err(self.unreadable()) }
    }

    /// Returns the error of a type of GGUF files that cannot be read.
    pub(crate) fn unreadable(&self) -> LoadError {
        let remedy = "files named Q4_K_M, Q5_K_M, Q6_K or Q8_0 have types that are";
        LoadError::TensorType { name: self.name.clone(), found: self.dtype.to_string(), remedy }
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

    /// Returns the number of adjacent rows within which rows are in another order.
    fn group(self, count: usize) -> usize {
        match self {
            Self::AsIs => 1,
            Self::Interleaved { heads } => count / heads,
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
