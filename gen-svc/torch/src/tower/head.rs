//! From patches to rows of the text model.

use tandem_core::models::vision::tower::{self, Activation, Pool};
use tch::{Kind, Tensor};

use super::parts::{Linear, Norm, activated};
use crate::decoder::load::Loader;
use crate::error::Error;

#[derive(Debug)]
pub(super) struct Head {
    pool: Pool,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Norm(Norm),
    Linear(Linear),
    Activation(Activation),
    Standardize { bias: Tensor, scale: Tensor },
}

/// `[n, N, C]` to one row for each square, for a grid of `rows` x `columns` patches.
fn pooled(pool: Pool, x: &Tensor, [rows, columns]: [usize; 2]) -> Result<Tensor, Error> {
    let (count, _, hidden) = x.size3()?;
    if let Pool::Join { count, .. } = pool {
        return Ok(x.f_reshape([-1, count as i64 * hidden])?);
    }
    let side = pool.merge() as i64;
    let (down, across) = (rows as i64 / side, columns as i64 / side);
    let grid = x.f_view([count, rows as i64, columns as i64, hidden])?;
    // Patches after the last whole square have no row.
    let whole = grid.f_narrow(1, 0, down * side)?.f_narrow(2, 0, across * side)?;
    let squares = whole.f_reshape([count, down, side, across, side, hidden])?;
    Ok(match pool {
        Pool::Mean { scale, .. } => {
            let mean = squares.f_mean_dim([2i64, 4].as_slice(), false, None::<Kind>)?;
            mean.f_mul_scalar(scale)?.f_reshape([-1, hidden])?
        }
        Pool::Unfold { .. } => squares.f_permute([0, 1, 3, 5, 2, 4])?.f_reshape([-1, side * side * hidden])?,
        _ => squares.f_permute([0, 1, 3, 2, 4, 5])?.f_reshape([-1, side * side * hidden])?,
    })
}

impl Head {
    pub(super) fn load(loader: &Loader<'_>, head: &tower::Head) -> Result<Self, Error> {
        let steps = head.steps.iter().map(|step| Step::load(loader, step)).collect::<Result<_, _>>()?;
        Ok(Self { pool: head.pool, steps })
    }

    /// `[n, N, C] -> [rows, E]`
    pub(super) fn forward(&self, x: &Tensor, grid: [usize; 2]) -> Result<Tensor, Error> {
        let (before, after) = match self.pool {
            Pool::Join { late: true, .. } | Pool::Unfold { .. } => self.steps.split_at(1),
            _ => self.steps.split_at(0),
        };
        let run = |steps: &[Step], x: Tensor| steps.iter().try_fold(x, |x, step| step.forward(&x));
        let pooled = pooled(self.pool, &run(before, x.shallow_clone())?, grid)?;
        run(after, pooled)
    }
}

impl Step {
    fn load(loader: &Loader<'_>, step: &tower::Step) -> Result<Self, Error> {
        Ok(match step {
            tower::Step::Norm(norm) => Self::Norm(Norm::load(loader, norm)?),
            tower::Step::Linear(linear) => Self::Linear(Linear::load(loader, linear)?),
            tower::Step::Activation(activation) => Self::Activation(*activation),
            tower::Step::Standardize { bias, scale, size } => {
                Self::Standardize { bias: loader.tensor(bias, &[*size])?, scale: loader.tensor(scale, &[*size])? }
            }
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        match self {
            Self::Norm(norm) => norm.forward(x),
            Self::Linear(linear) => linear.forward(x),
            Self::Activation(activation) => activated(*activation, x),
            Self::Standardize { bias, scale } => Ok(x.f_sub(bias)?.f_mul(scale)?),
        }
    }
}
