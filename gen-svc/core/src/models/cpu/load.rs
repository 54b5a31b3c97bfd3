//! Packs stored tensors for the kernels.

use tandem_kernels::{BlockFormat, Format, Kernels, KvFormat, Matrix, Rows, Target};
use tandem_model_files::gguf::GgmlType;

use super::parts::{Linear, RmsNorm};
use crate::error::LoadError;
use crate::models::decoder::{self, RowsOf};
use crate::weights::{ModelFile, Stored};

/// The precision of weights in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floats: the reference.
    F32,
    /// bfloat16.
    Bf16,
    /// Quantized blocks as they are stored; floats as 32-bit floats.
    Keep,
    /// 8 bits, with a scale for every 32.
    Int8,
    /// 4 bits, with a scale and a minimum for every 32; the first and the last matrix in 8.
    Int4,
}

impl Precision {
    /// Returns the format of keys and values.
    pub(super) fn kv(self) -> KvFormat {
        match self {
            Self::F32 => KvFormat::F32,
            Self::Bf16 => KvFormat::Bf16,
            Self::Keep | Self::Int8 | Self::Int4 => KvFormat::F16,
        }
    }

    fn target(self, stored: Format) -> Target {
        match self {
            Self::F32 => Target::F32,
            Self::Bf16 => Target::Bf16,
            Self::Keep if stored.needs_integers() => Target::Keep,
            Self::Keep => Target::F32,
            Self::Int8 => Target::Int8,
            Self::Int4 => Target::Int4,
        }
    }

    /// Returns the precision of the embedding table and the head, which affect the output most.
    fn outer(self) -> Self {
        if self == Self::Int4 { Self::Int8 } else { self }
    }
}

/// Reads and packs a model's tensors.
#[derive(Debug)]
pub(super) struct Loader<'a> {
    file: &'a ModelFile,
    kernels: &'a Kernels,
    precision: Precision,
}

impl<'a> Loader<'a> {
    pub(super) fn new(file: &'a ModelFile, kernels: &'a Kernels, precision: Precision) -> Self {
        Self { file, kernels, precision }
    }

    pub(super) fn norm(&self, norm: &decoder::Norm) -> Result<RmsNorm, LoadError> {
        let weight = self.file.tensor(&format!("{}.weight", norm.name), &[norm.size])?.to_f32()?;
        Ok(RmsNorm { weight, epsilon: norm.epsilon, offset: norm.offset })
    }

    pub(super) fn linear(&self, matrix: &decoder::Matrix) -> Result<Linear, LoadError> {
        let [linear] = self.parts(std::slice::from_ref(matrix), [matrix.rows])?;
        Ok(linear)
    }

    /// Returns a loader of small matrices with a large effect, which are not quantized at load.
    pub(super) fn exact(&self) -> Self {
        let is_quantized = matches!(self.precision, Precision::Int8 | Precision::Int4);
        Self { precision: if is_quantized { Precision::F32 } else { self.precision }, ..*self }
    }

    /// Reads a tensor of numbers by its whole name.
    pub(super) fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.file.tensor(name, shape)?.to_f32()
    }

    /// Packs a vector of `columns` numbers as a matrix of one row.
    pub(super) fn row(&self, name: &str, columns: usize) -> Result<Linear, LoadError> {
        let stored = self.file.tensor(&format!("{name}.weight"), &[columns])?;
        Ok(Linear { matrix: self.pack(&stored, columns, 0..stored.row_count())?, bias: None })
    }

    /// Packs rows of stored matrices, one after another, as one matrix. The stored ones have the same format.
    pub(super) fn gathered(&self, parts: &[&RowsOf<'_>]) -> Result<Linear, LoadError> {
        let (mut bytes, mut biases, mut source) = (Vec::new(), Vec::new(), None);
        for RowsOf { matrix, ranges } in parts {
            let stored = self.file.tensor(&format!("{}.weight", matrix.name), &[matrix.rows, matrix.columns])?;
            let found = (format(&stored)?, matrix.columns);
            if *source.get_or_insert(found) != found {
                return Err(self.misfit(matrix));
            }
            for range in ranges {
                bytes.extend(stored.rows(range.clone())?);
                biases.extend(self.bias(matrix, range.clone())?.unwrap_or_default());
            }
        }
        let (format, columns) = source.unwrap_or((Format::F32, 1));
        let matrix = self.kernels.pack(&Rows { format, columns, bytes: &bytes }, self.precision.target(format))?;
        Ok(Linear { bias: (!biases.is_empty()).then_some(biases), matrix })
    }

    /// Packs the embedding table.
    pub(super) fn table(&self, matrix: &decoder::Matrix) -> Result<Matrix, LoadError> {
        Ok(self.head(matrix)?.matrix)
    }

    /// Packs the head.
    pub(super) fn head(&self, matrix: &decoder::Matrix) -> Result<Linear, LoadError> {
        Self { precision: self.precision.outer(), ..*self }.linear(matrix)
    }

    /// Packs matrices with the given numbers of rows. `stacked` has exactly these rows: in one
    /// matrix each, or all in one matrix.
    pub(super) fn parts<const N: usize>(
        &self,
        stacked: &[decoder::Matrix],
        rows: [usize; N],
    ) -> Result<[Linear; N], LoadError> {
        let missing =
            || LoadError::TensorMissing { name: stacked.first().map(|matrix| matrix.name.clone()).unwrap_or_default() };
        let mut sources = stacked.iter();
        let (mut whole, mut taken) = (None, 0);
        let mut next = |rows: usize| -> Result<Linear, LoadError> {
            let (matrix, stored) = match whole.take() {
                Some(open) => open,
                None => {
                    let matrix = sources.next().ok_or_else(missing)?;
                    taken = 0;
                    (matrix, self.file.tensor(&format!("{}.weight", matrix.name), &[matrix.rows, matrix.columns])?)
                }
            };
            let range = taken..taken + rows;
            if range.end > matrix.rows {
                return Err(missing());
            }
            taken = range.end;
            let linear =
                Linear { matrix: self.pack(&stored, matrix.columns, range.clone())?, bias: self.bias(matrix, range)? };
            if taken < matrix.rows {
                whole = Some((matrix, stored));
            }
            Ok(linear)
        };
        let linears = rows.into_iter().map(&mut next).collect::<Result<Vec<_>, _>>()?;
        linears.try_into().map_err(|_| missing())
    }

    /// Returns the error of matrices whose rows are not those of the layer.
    pub(super) fn misfit(&self, matrix: &decoder::Matrix) -> LoadError {
        LoadError::TensorMissing { name: matrix.name.clone() }
    }

    /// Packs a range of rows of a stored matrix, in the model's order.
    fn pack(&self, stored: &Stored<'_>, columns: usize, rows: std::ops::Range<usize>) -> Result<Matrix, LoadError> {
        let format = format(stored)?;
        let bytes = stored.rows(rows)?;
        let source = Rows { format, columns, bytes: &bytes };
        Ok(self.kernels.pack(&source, self.precision.target(format))?)
    }

    fn bias(&self, matrix: &decoder::Matrix, rows: std::ops::Range<usize>) -> Result<Option<Vec<f32>>, LoadError> {
        if !matrix.bias {
            return Ok(None);
        }
        let bias = self.file.tensor(&format!("{}.bias", matrix.name), &[matrix.rows])?.to_f32()?;
        Ok(Some(bias[rows].to_vec()))
    }
}

fn format(stored: &Stored<'_>) -> Result<Format, LoadError> {
    Ok(match stored.dtype {
        GgmlType::F32 => Format::F32,
        GgmlType::F16 => Format::F16,
        GgmlType::BF16 => Format::Bf16,
        GgmlType::Q3_K => Format::Block(BlockFormat::Q3_K),
        GgmlType::Q4_0 => Format::Block(BlockFormat::Q4_0),
        GgmlType::Q4_1 => Format::Block(BlockFormat::Q4_1),
        GgmlType::Q5_0 => Format::Block(BlockFormat::Q5_0),
        GgmlType::Q5_1 => Format::Block(BlockFormat::Q5_1),
        GgmlType::Q8_0 => Format::Block(BlockFormat::Q8_0),
        GgmlType::Q4_K => Format::Block(BlockFormat::Q4_K),
        GgmlType::Q5_K => Format::Block(BlockFormat::Q5_K),
        GgmlType::Q6_K => Format::Block(BlockFormat::Q6_K),
        GgmlType::IQ4_NL => Format::Block(BlockFormat::IQ4_NL),
        GgmlType::IQ4_XS => Format::Block(BlockFormat::IQ4_XS),
        _ => return Err(stored.unreadable()),
    })
}
