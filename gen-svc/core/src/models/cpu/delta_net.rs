//! A layer's gated DeltaNet.
//!
//! Shapes: T tokens of a call, E hidden size, K taps, C channels of the convolution, N value heads, Dv
//! value size.

use tandem_kernels::{
    Activation, Convolution, DeltaRule, Gates, KeyHeads, StateRun, StateSave, StateShape, StateStep, by_tap,
};

use super::load::Loader;
use super::parts::{Linear, RmsNorm};
use super::workspace::{Branch, Workspace};
use crate::error::{LoadError, StepError};
use crate::models::decoder;
use crate::models::interface::SequenceChunk;

#[derive(Debug)]
pub(super) struct DeltaNet {
    /// The index among the layers with states.
    layer: usize,
    pairing: KeyHeads,
    /// Queries, keys and values; z; b; a.
    inputs: [Linear; 4],
    /// `[K, C]`
    taps: Vec<f32>,
    activation: Activation,
    /// `[N]`
    rate: Vec<f32>,
    /// `[N]`
    bias: Vec<f32>,
    norm: RmsNorm,
    output: Linear,
}

impl DeltaNet {
    pub(super) fn load(delta_net: &decoder::DeltaNet, layer: usize, loader: &Loader<'_>) -> Result<Self, LoadError> {
        let decoder::DeltaNet { convolution, decay, .. } = delta_net;
        let rows: Vec<_> = delta_net.inputs.iter().flat_map(decoder::Grouped::parts).collect();
        let [queries, keys, values, z, b, a] = &rows[..] else { return Err(loader.misfit(&delta_net.output)) };
        let exact = loader.exact();
        let rate = loader.numbers(&decay.rate, &[decay.heads])?.into_iter();
        let rate = rate.map(|rate| if decay.is_negated { -rate } else { f64::from(rate).exp() as f32 });
        Ok(Self {
            layer,
            pairing: match delta_net.pairing {
                decoder::KeyHeads::Adjacent => KeyHeads::Adjacent,
                decoder::KeyHeads::Strided => KeyHeads::Strided,
            },
            inputs: [
                loader.gathered(&[queries, keys, values])?,
                loader.gathered(&[z])?,
                exact.gathered(&[b])?,
                exact.gathered(&[a])?,
            ],
            taps: by_tap(
                &loader.numbers(&format!("{}.weight", convolution.name), &convolution.shape())?,
                convolution.taps,
            ),
            activation: convolution.activation.into(),
            rate: rate.collect(),
            bias: loader.numbers(&decay.bias, &[decay.heads])?,
            norm: loader.norm(&delta_net.norm)?,
            output: loader.linear(&delta_net.output)?,
        })
    }

    /// Returns the bytes of the matrices in memory.
    pub(super) fn bytes(&self) -> usize {
        self.inputs.iter().chain([&self.output]).map(Linear::bytes).sum()
    }

    /// Adds the output of the tokens of `normal` to `x`, both `[T, E]`, and advances their states.
    pub(super) fn forward(
        &self,
        normal: &[f32],
        step: &mut StateStep<'_>,
        workspace: &mut Workspace,
        branch: Branch<'_>,
        x: &mut [f32],
    ) -> Result<(), StepError> {
        let (shape, count) = (*step.shape(), step.tokens());
        let [mut rows, mut z, mut b, mut a] =
            self.inputs.each_ref().map(|linear| workspace.buffers.take(count * linear.matrix.rows()));
        let outs: &mut [&mut [f32]] = &mut [&mut rows, &mut z, &mut b, &mut a];
        workspace.multiply(normal, &self.inputs.each_ref(), outs)?;
        let mut mixed = workspace.buffers.take(rows.len());
        let convolution =
            Convolution { layer: self.layer, weights: &self.taps, activation: self.activation, rows: &rows };
        workspace.kernels.convolve(step, convolution, &mut mixed)?;
        workspace.kernels.normalize_queries_and_keys(&shape, &mut mixed)?;
        let [mut decay, mut beta] = [a.len(); 2].map(|length| workspace.buffers.take(length));
        let gates = Gates { a: &a, b: &b, rate: &self.rate, bias: &self.bias };
        workspace.kernels.gates(gates, &mut decay, &mut beta)?;
        let mut out = workspace.buffers.take(z.len());
        let rule = DeltaRule { layer: self.layer, key_heads: self.pairing, rows: &mixed, decay: &decay, beta: &beta };
        workspace.kernels.recur(step, rule, &mut out)?;
        workspace.kernels.norm_gated(&mut out, self.norm.kernel(), &z)?;
        workspace.add(&out, &self.output, branch, x)?;
        [rows, z, b, a, mixed, decay, beta, out].into_iter().for_each(|buffer| workspace.buffers.give(buffer));
        Ok(())
    }
}

/// Returns the sizes of the states, without slots. `None` if the model has none, or layers with different ones.
pub(super) fn state_shape(description: &decoder::Decoder) -> Option<StateShape> {
    let mut shapes = description.delta_nets().map(|delta_net| StateShape {
        layers: description.delta_nets().count(),
        slots: 0,
        taps: delta_net.convolution.taps,
        key_heads: delta_net.key_heads,
        value_heads: delta_net.value_heads,
        key_size: delta_net.key_size,
        value_size: delta_net.value_size,
    });
    let first = shapes.next()?;
    shapes.all(|shape| shape == first).then_some(first)
}

/// Returns the states to save of each chunk.
pub(super) fn saves(chunks: &[SequenceChunk<'_>]) -> Vec<Vec<StateSave>> {
    let of = |chunk: &SequenceChunk<'_>| {
        let saves = chunk.states.iter().flat_map(|states| states.saves);
        saves.map(|save| StateSave { tokens: save.tokens.saturating_sub(chunk.past), slot: save.state.0 }).collect()
    };
    chunks.iter().map(of).collect()
}

/// Returns the runs of the chunks, of which each has its saves.
///
/// # Errors
/// [`StepError::Broken`]: a chunk has no states.
pub(super) fn runs<'a>(
    chunks: &[SequenceChunk<'_>],
    saves: &'a [Vec<StateSave>],
) -> Result<Vec<StateRun<'a>>, StepError> {
    let run = |(chunk, saves): (&SequenceChunk<'_>, &'a Vec<StateSave>)| {
        let states = chunk.states.ok_or(StepError::Broken)?;
        Ok(StateRun {
            past: chunk.past,
            length: chunk.tokens.len(),
            from: states.from.map(|state| state.0),
            to: states.to.0,
            saves,
        })
    };
    chunks.iter().zip(saves).map(run).collect()
}
