//! The parameters of a call, and the checks of their shapes.

use crate::act::Activation;
use crate::error::{Error, expect, expect_below, expect_multiple};
use crate::pack::{Format, Matrix};
use crate::quantize::Int8Rows;

/// Rows to multiply: \[tokens\]\[columns\].
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub floats: &'a [f32],
    pub columns: usize,
    /// The same rows, quantized. Required if a matrix
    /// [needs integers](crate::Format::needs_integers).
    pub integers: Option<&'a Int8Rows>,
}

/// A matrix and the bias of its outputs.
#[derive(Debug, Clone, Copy)]
pub struct Linear<'a> {
    pub matrix: &'a Matrix,
    /// \[rows of the matrix\].
    pub bias: Option<&'a [f32]>,
}

/// The computation that yields a product's outputs.
#[derive(Debug, Clone, Copy)]
pub enum Projection<'a> {
    Linear(Linear<'a>),
    /// activation(gate) * up, element by element. Both matrices have the same sizes.
    Gated {
        gate: Linear<'a>,
        up: Linear<'a>,
        activation: Activation,
    },
}

/// How outputs are written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Epilogue<'a> {
    /// Overwrites the output.
    Store,
    /// Adds the result, multiplied by `scale`, to the output.
    Add { scale: f32 },
    /// Adds the result of token t, multiplied by `scales[t]`, to row `rows[t]` of the output. The
    /// output has any number of rows. This is the contribution of an expert.
    Scatter { rows: &'a [u32], scales: &'a [f32] },
}

/// One product of a call. Several products can share their input.
#[derive(Debug)]
pub struct Product<'a> {
    pub projection: Projection<'a>,
    pub epilogue: Epilogue<'a>,
    /// \[tokens\]\[rows of the matrix\], except for [`Epilogue::Scatter`].
    pub out: &'a mut [f32],
}

impl Input<'_> {
    pub(super) fn tokens(&self) -> Result<usize, Error> {
        expect_multiple("input", self.columns.max(1), self.floats.len())?;
        let tokens = self.floats.len() / self.columns.max(1);
        if let Some(integers) = self.integers {
            expect("columns of quantized input", self.columns, integers.columns())?;
            expect("rows of quantized input", tokens, integers.rows())?;
        }
        Ok(tokens)
    }
}

impl Product<'_> {
    pub(super) fn check(&self, input: &Input<'_>, tokens: usize) -> Result<(), Error> {
        for linear in self.projection.linears().into_iter().flatten() {
            linear.check(input)?;
            expect("rows of a gate and its up projection", self.projection.rows(), linear.matrix.rows())?;
        }
        match self.epilogue {
            Epilogue::Scatter { rows, scales } => self.check_scatter(tokens, rows, scales),
            Epilogue::Store | Epilogue::Add { .. } => expect("output", tokens * self.projection.rows(), self.out.len()),
        }
    }

    fn check_scatter(&self, tokens: usize, rows: &[u32], scales: &[f32]) -> Result<(), Error> {
        expect("rows to scatter to", tokens, rows.len())?;
        expect("scales of scattered rows", tokens, scales.len())?;
        expect_multiple("output", self.projection.rows(), self.out.len())?;
        let limit = self.out.len() / self.projection.rows();
        rows.iter().try_for_each(|row| expect_below("row to scatter to", limit, *row as usize))
    }
}

impl Linear<'_> {
    fn check(&self, input: &Input<'_>) -> Result<(), Error> {
        expect("columns of a matrix and its input", self.matrix.columns(), input.columns)?;
        if let Some(bias) = self.bias {
            expect("bias", self.matrix.rows(), bias.len())?;
        }
        let missing = self.matrix.format().needs_integers() && input.integers.is_none();
        if missing { Err(Error::NotQuantized) } else { Ok(()) }
    }
}

impl<'a> Projection<'a> {
    pub(super) fn linears(&self) -> [Option<Linear<'a>>; 2] {
        match *self {
            Self::Linear(linear) => [Some(linear), None],
            Self::Gated { gate, up, .. } => [Some(gate), Some(up)],
        }
    }

    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Linear(linear) | Self::Gated { gate: linear, .. } => linear.matrix.rows(),
        }
    }

    pub(super) fn needs_integers(&self) -> bool {
        self.linears().into_iter().flatten().any(|linear| linear.matrix.format().needs_integers())
    }

    /// Returns true if a matrix is multiplied by rows rounded to bf16.
    pub(super) fn needs_pairs(&self) -> bool {
        self.linears().into_iter().flatten().any(|linear| linear.matrix.format() == Format::Bf16)
    }

    pub(super) fn bytes(&self) -> usize {
        self.linears().into_iter().flatten().map(|linear| linear.matrix.bytes()).sum()
    }
}
