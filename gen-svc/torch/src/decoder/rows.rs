//! Rows of products that are as many in every step.
//!
//! libtorch and NVIDIA's libraries choose the order of a product's sums by its shape. Where the results of a
//! row must not depend on the other rows of its step, steps are padded to a multiple of [`ROWS`], and each
//! product has exactly these rows.

use tch::Tensor;

use crate::error::Error;
use crate::target::TorchTarget;

/// The rows of a product. A GPU computes as many in the time that it needs to read the matrix.
const ROWS: usize = 128;

/// The rows of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProductRows {
    /// Those of the step.
    Any,
    /// [`ROWS`].
    Fixed,
}

impl ProductRows {
    pub(super) fn of(target: TorchTarget) -> Self {
        if target.batch_invariant { Self::Fixed } else { Self::Any }
    }

    /// Returns the number of rows with padding.
    pub(super) fn padded(self, count: usize) -> usize {
        match self {
            Self::Any => count,
            Self::Fixed => count.next_multiple_of(ROWS),
        }
    }

    /// Computes padded rows: `[n, a] -> [n, b]`
    pub(super) fn compute(
        self,
        x: &Tensor,
        compute: impl Fn(&Tensor) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        if self == Self::Any || x.size2()?.0 <= ROWS as i64 {
            return compute(x);
        }
        let parts: Vec<Tensor> = x.f_split(ROWS as i64, 0)?.iter().map(compute).collect::<Result<_, _>>()?;
        Ok(Tensor::f_cat(&parts, 0)?)
    }
}
