//! The gated feed-forward block, alone or as one of many experts.
//!
//! Shapes: T tokens of a call, E hidden size, F feed-forward size, X experts, k of them per token.

use tandem_core::models::decoder::{self, Activation, Matrix};
use tch::{Kind, Tensor};

use super::grouped::{Products, Sorted};
use super::layers::{Linear, activate};
use super::load::Loader;
use super::rows::ProductRows;
use super::stack::Stack;
use crate::error::Error;

#[derive(Debug)]
pub(super) enum FeedForward {
    Gated(Gated),
    Experts(Experts),
}

#[derive(Debug)]
pub(super) struct Gated {
    gate_up: Linear,
    down: Linear,
    activation: Activation,
    size: i64,
}

#[derive(Debug)]
pub(super) struct Experts {
    router: Linear,
    /// `[X, 2F, E]`
    gate_up: Stack,
    /// `[X, E, F]`
    down: Stack,
    activation: Activation,
    size: i64,
    per_token: i64,
    normalize: bool,
    /// `[X]`, the experts' indexes.
    indexes: Tensor,
    products: Products,
    rows: ProductRows,
}

impl FeedForward {
    pub(super) fn load(feed_forward: &decoder::FeedForward, loader: &Loader<'_>) -> Result<Self, Error> {
        match feed_forward {
            decoder::FeedForward::Gated(gated) => Ok(Self::Gated(Gated::load(gated, loader)?)),
            decoder::FeedForward::Experts(experts) => Ok(Self::Experts(Experts::load(experts, loader)?)),
        }
    }

    /// `[T, E] -> [T, E]`
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        match self {
            Self::Gated(gated) => gated.forward(x),
            Self::Experts(experts) => experts.rows.compute(x, |x| experts.forward(x)),
        }
    }
}

impl Gated {
    fn load(gated: &decoder::Gated, loader: &Loader<'_>) -> Result<Self, Error> {
        Ok(Self {
            gate_up: Linear::load(loader, &gated.gate_up)?,
            down: Linear::load(loader, std::slice::from_ref(&gated.down))?,
            activation: gated.activation,
            size: gated.size as i64,
        })
    }

    /// `[T, E] -> [T, E]`
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.down.forward(&gated(&self.gate_up.forward(x)?, self.activation, self.size)?)
    }
}

/// Multiplies the activated gate with the other half: `[T, 2F] -> [T, F]`
fn gated(both: &Tensor, activation: Activation, size: i64) -> Result<Tensor, Error> {
    let gate = activate(&both.f_narrow(1, 0, size)?, activation)?;
    Ok(gate.f_mul(&both.f_narrow(1, size, size)?)?)
}

impl Experts {
    fn load(experts: &decoder::Experts, loader: &Loader<'_>) -> Result<Self, Error> {
        let parts: Vec<decoder::Gated> = (0..experts.count).map(|i| experts.expert(i)).collect();
        let stack = |matrices: &dyn Fn(&decoder::Gated) -> Vec<Matrix>| {
            let groups: Vec<Vec<Matrix>> = parts.iter().map(matrices).collect();
            Stack::load(loader, &groups)
        };
        Ok(Self {
            // It is small, and a token whose experts change changes much.
            router: Linear::unpacked(loader, &experts.router)?,
            gate_up: stack(&|part| part.gate_up.clone())?,
            down: stack(&|part| vec![part.down.clone()])?,
            activation: experts.activation,
            size: experts.size as i64,
            per_token: experts.per_token as i64,
            normalize: experts.normalize,
            indexes: Tensor::f_arange(experts.count as i64, (Kind::Int64, loader.target().device))?,
            products: Products::of(loader.target()),
            rows: ProductRows::of(loader.target()),
        })
    }

    /// Sorts the choices of all tokens by expert, so that an expert's rows are adjacent: `[T, E] -> [T, E]`
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let (shares, chosen) = self.choose(x)?; // [T, k]
        let (experts, order) = chosen.f_reshape(-1)?.f_sort(-1, false)?; // [T * k]
        let tokens = order.f_floor_divide_scalar(self.per_token)?;
        let sorted = self.sorted(experts)?;
        let both = self.gate_up.product(&x.f_index_select(0, &tokens)?, &sorted)?;
        let computed = self.down.product(&gated(&both, self.activation, self.size)?, &sorted)?; // [T * k, E]
        let mut of_tokens = computed.f_empty_like()?;
        drop(of_tokens.f_index_copy_(0, &order, &computed)?);
        let weighted = of_tokens.f_view([-1, self.per_token, x.size2()?.1])?.f_mul(&shares.f_unsqueeze(2)?)?;
        Ok(weighted.f_sum_dim_intlist(1, false, None::<Kind>)?)
    }

    /// Finds the rows of each expert, among rows that are sorted by expert: `[T * k]`
    fn sorted(&self, experts: Tensor) -> Result<Sorted, Error> {
        let ends = self.indexes.f_searchsorted(&experts, true, true, "right", None::<&Tensor>)?; // [X]
        let needs_ends = !self.gate_up.unpacks_each(experts.size1()?);
        let sorted = Sorted::new(experts, ends);
        if self.products == Products::Separate && needs_ends { sorted.read() } else { Ok(sorted) }
    }

    /// Returns the shares and the indexes of each token's experts: `[T, E] -> [T, k], [T, k]`
    fn choose(&self, x: &Tensor) -> Result<(Tensor, Tensor), Error> {
        let scores = self.router.forward(x)?; // [T, X]
        let largest = |numbers: &Tensor| numbers.f_topk(self.per_token, -1, true, true);
        let (shares, chosen) = if self.normalize {
            // Shares that are scaled to a sum of 1 are those of a softmax over the chosen experts.
            let (scores, chosen) = largest(&scores)?;
            (scores.f_softmax(-1, Kind::Float)?, chosen)
        } else {
            largest(&scores.f_softmax(-1, Kind::Float)?)?
        };
        Ok((shares.f_to_kind(x.f_kind()?)?, chosen))
    }
}
