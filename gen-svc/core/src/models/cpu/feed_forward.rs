//! A layer's feed-forward, for all tokens or by experts.
//!
//! Shapes: T tokens of a call, E hidden size, F feed-forward size.

use tandem_kernels::{Activation, Epilogue, Product, Projection};

use super::buffers::Buffer;
use super::load::Loader;
use super::parts::Linear;
use super::workspace::{Branch, Workspace};
use crate::error::{LoadError, StepError};
use crate::models::decoder;

#[derive(Debug)]
pub(super) enum FeedForward {
    Gated(Gated),
    Experts(Experts),
}

#[derive(Debug)]
pub(super) struct Gated {
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: Activation,
}

#[derive(Debug)]
pub(super) struct Experts {
    router: Linear,
    experts: Vec<Gated>,
    per_token: usize,
    normalize: bool,
    /// The expert of all tokens, and its gate.
    shared: Option<Box<(Gated, Linear)>>,
}

/// The tokens of one expert, and the weights of its output.
#[derive(Debug, Clone, Default)]
struct Share {
    tokens: Vec<u32>,
    weights: Vec<f32>,
}

impl FeedForward {
    pub(super) fn load(feed_forward: &decoder::FeedForward, loader: &Loader<'_>) -> Result<Self, LoadError> {
        match feed_forward {
            decoder::FeedForward::Gated(gated) => Ok(Self::Gated(Gated::load(gated, loader)?)),
            decoder::FeedForward::Experts(experts) => Ok(Self::Experts(Experts::load(experts, loader)?)),
        }
    }

    /// Returns the bytes of the matrices in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Gated(gated) => gated.bytes(),
            Self::Experts(Experts { router, experts, shared, .. }) => {
                let shared = shared.as_deref().map_or(0, |(expert, gate)| expert.bytes() + gate.bytes());
                router.bytes() + experts.iter().map(Gated::bytes).sum::<usize>() + shared
            }
        }
    }

    /// Adds the feed-forward of `normal` to `x`, both `[T, E]`.
    pub(super) fn forward(
        &self,
        normal: &[f32],
        workspace: &mut Workspace,
        branch: Branch<'_>,
        x: &mut [f32],
    ) -> Result<(), StepError> {
        match self {
            Self::Gated(gated) => {
                let middle = gated.middle(normal, workspace)?;
                workspace.add(&middle, &gated.down, branch, x)?;
                workspace.buffers.give(middle);
                Ok(())
            }
            Self::Experts(experts) => experts.forward(normal, workspace, branch, x),
        }
    }
}

impl Gated {
    fn load(gated: &decoder::Gated, loader: &Loader<'_>) -> Result<Self, LoadError> {
        let [gate, up] = loader.parts(&gated.gate_up, [gated.size; 2])?;
        Ok(Self { gate, up, down: loader.linear(&gated.down)?, activation: gated.activation.into() })
    }

    fn bytes(&self) -> usize {
        [&self.gate, &self.up, &self.down].map(Linear::bytes).iter().sum()
    }

    /// `[T, E] -> [T, F]`
    fn middle(&self, normal: &[f32], workspace: &mut Workspace) -> Result<Buffer, StepError> {
        let columns = self.gate.matrix.columns();
        let mut middle = workspace.buffers.take(normal.len() / columns * self.gate.matrix.rows());
        let projection =
            Projection::Gated { gate: self.gate.kernel(), up: self.up.kernel(), activation: self.activation };
        workspace.compute(
            normal,
            columns,
            &mut [Product { projection, epilogue: Epilogue::Store, out: &mut middle }],
        )?;
        Ok(middle)
    }

    /// Adds the output for the tokens of a share, whose rows are `rows`, to their rows of `out`, `[T, E]`.
    fn add_scaled(
        &self,
        rows: &[f32],
        share: &Share,
        out: &mut [f32],
        workspace: &mut Workspace,
    ) -> Result<(), StepError> {
        let middle = self.middle(rows, workspace)?;
        let epilogue = Epilogue::Scatter { rows: &share.tokens, scales: &share.weights };
        let projection = Projection::Linear(self.down.kernel());
        workspace.compute(&middle, self.down.matrix.columns(), &mut [Product { projection, epilogue, out }])?;
        workspace.buffers.give(middle);
        Ok(())
    }
}

impl Experts {
    fn load(experts: &decoder::Experts, loader: &Loader<'_>) -> Result<Self, LoadError> {
        let expert = |i| Gated::load(&experts.expert(i), loader);
        let shared = experts.shared.as_ref().map(|shared| {
            let gate = loader.exact().row(&shared.gate, experts.router.columns)?;
            Ok::<_, LoadError>(Box::new((Gated::load(&shared.feed_forward, loader)?, gate)))
        });
        Ok(Self {
            router: loader.linear(&experts.router)?,
            experts: (0..experts.count).map(expert).collect::<Result<_, _>>()?,
            per_token: experts.per_token,
            normalize: experts.normalize,
            shared: shared.transpose()?,
        })
    }

    fn forward(
        &self,
        normal: &[f32],
        workspace: &mut Workspace,
        branch: Branch<'_>,
        x: &mut [f32],
    ) -> Result<(), StepError> {
        let width = self.router.matrix.columns();
        let mut out = vec![0.0; normal.len()];
        for (expert, share) in self.experts.iter().zip(self.shares(normal, workspace)?) {
            if share.tokens.is_empty() {
                continue;
            }
            let rows: Vec<f32> =
                share.tokens.iter().flat_map(|&token| &normal[token as usize * width..][..width]).copied().collect();
            expert.add_scaled(&rows, &share, &mut out, workspace)?;
        }
        if let Some((expert, gate)) = self.shared.as_deref() {
            let tokens: Vec<u32> = (0..normal.len() as u32 / width as u32).collect();
            let mut weights = vec![0.0; tokens.len()];
            workspace.multiply(normal, &[gate], &mut [&mut weights])?;
            workspace.kernels.sigmoid(&mut weights);
            expert.add_scaled(normal, &Share { tokens, weights }, &mut out, workspace)?;
        }
        match branch.norm {
            Some(norm) => Ok(workspace.kernels.add_norm(&out, norm.kernel(), branch.scale, x)?),
            None => {
                x.iter_mut().zip(&out).for_each(|(x, out)| *x += branch.scale * out);
                Ok(())
            }
        }
    }

    /// Returns the tokens of each expert: it is among the experts with the largest softmax shares
    /// of the token.
    fn shares(&self, normal: &[f32], workspace: &mut Workspace) -> Result<Vec<Share>, StepError> {
        let count = self.experts.len();
        let tokens = normal.len() / self.router.matrix.columns();
        let mut scores = vec![0.0; tokens * count];
        workspace.multiply(normal, &[&self.router], &mut [&mut scores])?;
        let mut shares = vec![Share::default(); count];
        for (token, scores) in scores.chunks_exact(count).enumerate() {
            for (expert, weight) in self.chosen(scores) {
                shares[expert].tokens.push(token as u32);
                shares[expert].weights.push(weight);
            }
        }
        Ok(shares)
    }

    /// Returns the experts of one token and their weights. Of equal experts, the first is chosen.
    fn chosen(&self, scores: &[f32]) -> Vec<(usize, f32)> {
        let best = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - best).exp()).collect();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
        order.truncate(self.per_token);
        let over: &mut dyn Iterator<Item = &f32> =
            if self.normalize { &mut order.iter().map(|&expert| &weights[expert]) } else { &mut weights.iter() };
        let total: f32 = over.sum();
        order.iter().map(|&expert| (expert, weights[expert] / total)).collect()
    }
}
