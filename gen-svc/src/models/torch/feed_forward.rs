//! The gated feed-forward block, alone or as one of many experts.
//!
//! Shapes: T tokens of a call, E hidden size, F feed-forward size, X experts, k of them per token.

use tch::{Kind, Tensor};

use super::layers::{Linear, activate};
use super::load::Loader;
use crate::error::Error;
use crate::models::decoder::{self, Activation};

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
    experts: Vec<Gated>,
    per_token: i64,
    normalize: bool,
}

/// The work of one expert. It has the indexes of its tokens in the call, and the indexes of its
/// routing weights among all weights of the call.
#[derive(Debug, Clone, Default)]
struct Share {
    tokens: Vec<i64>,
    shares: Vec<i64>,
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
            Self::Experts(experts) => experts.forward(x),
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
        let both = self.gate_up.forward(x)?; // [T, 2F]
        let gate = both.f_narrow(1, 0, self.size)?;
        let gate = activate(&gate, self.activation)?;
        self.down.forward(&gate.f_mul(&both.f_narrow(1, self.size, self.size)?)?)
    }
}

impl Experts {
    fn load(experts: &decoder::Experts, loader: &Loader<'_>) -> Result<Self, Error> {
        let expert = |i| Gated::load(&experts.expert(i), loader);
        Ok(Self {
            router: Linear::load(loader, std::slice::from_ref(&experts.router))?,
            experts: (0..experts.count).map(expert).collect::<Result<_, _>>()?,
            per_token: experts.per_token as i64,
            normalize: experts.normalize,
        })
    }

    /// `[T, E] -> [T, E]`
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let shares = self.router.forward(x)?.f_softmax(-1, Kind::Float)?; // [T, X]
        let (mut shares, chosen) = shares.f_topk(self.per_token, -1, true, true)?; // [T, k]
        if self.normalize {
            shares = shares.f_div(&shares.f_sum_dim_intlist(-1, true, Kind::Float)?)?;
        }
        let shares = shares.f_to_kind(x.f_kind()?)?.f_view([-1, 1])?; // [T * k, 1]
        let mut sum = x.f_zeros_like()?;
        for (expert, share) in self.experts.iter().zip(self.divide(&chosen)?) {
            if share.tokens.is_empty() {
                continue;
            }
            let index = |of: &[i64]| Ok::<_, Error>(Tensor::f_from_slice(of)?.f_to_device(x.device())?);
            let tokens = index(&share.tokens)?;
            let computed = expert.forward(&x.f_index_select(0, &tokens)?)?;
            let weighted = computed.f_mul(&shares.f_index_select(0, &index(&share.shares)?)?)?;
            sum = sum.f_index_add(0, &tokens, &weighted)?;
        }
        Ok(sum)
    }

    /// Returns the work of each expert. `chosen` has the experts' indexes: `[T, k]`.
    fn divide(&self, chosen: &Tensor) -> Result<Vec<Share>, Error> {
        let chosen: Vec<i64> = chosen.f_to_device(tch::Device::Cpu)?.f_reshape(-1)?.try_into()?;
        let mut work = vec![Share::default(); self.experts.len()];
        for (share, &expert) in (0..).zip(&chosen) {
            work[expert as usize].tokens.push(share / self.per_token);
            work[expert as usize].shares.push(share);
        }
        Ok(work)
    }
}
