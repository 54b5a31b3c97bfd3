//! A layer's attention.
//!
//! Shapes: T tokens of a call, E hidden size, H query heads, K key/value heads, D head size.

use tandem_kernels::{Heads, KeysValues};

use super::load::Loader;
use super::parts::{Linear, RmsNorm};
use super::workspace::{Branch, Tokens, Workspace};
use crate::error::{LoadError, StepError};
use crate::models::decoder::{self, Grouped};

#[derive(Debug)]
pub(super) struct Attention {
    description: decoder::Attention,
    /// The index among the layers with keys and values.
    layer: usize,
    /// Queries, keys, values.
    qkv: [Linear; 3],
    /// The gates of the heads.
    gate: Option<Linear>,
    qk_norm: [Option<RmsNorm>; 2],
    output: Linear,
}

impl Attention {
    pub(super) fn load(attention: &decoder::Attention, layer: usize, loader: &Loader<'_>) -> Result<Self, LoadError> {
        let (queries, pairs) = (attention.heads * attention.head_size, attention.kv_heads * attention.head_size);
        let norm = |i: usize| attention.qk_norm[i].as_ref().map(|norm| loader.norm(norm)).transpose();
        let (qkv, gate) = match &attention.qkv[..] {
            [both, rest @ ..] if attention.is_gated => {
                let [keys, values] = loader.parts(rest, [pairs, pairs])?;
                let sizes = vec![attention.head_size; 2];
                let both = Grouped { matrix: both.clone(), groups: attention.heads, sizes };
                let parts: Vec<_> = both.parts().collect();
                let [queries, gates] = &parts[..] else { return Err(loader.misfit(&both.matrix)) };
                ([loader.gathered(&[queries])?, keys, values], Some(loader.gathered(&[gates])?))
            }
            qkv => (loader.parts(qkv, [queries, pairs, pairs])?, None),
        };
        Ok(Self {
            layer,
            qkv,
            gate,
            qk_norm: [norm(0)?, norm(1)?],
            output: loader.linear(&attention.output)?,
            description: attention.clone(),
        })
    }

    /// Returns the bytes of the matrices in memory.
    pub(super) fn bytes(&self) -> usize {
        self.qkv.iter().chain(&self.gate).chain([&self.output]).map(Linear::bytes).sum()
    }

    /// Adds the attention of the tokens of `normal` to `x`, both `[T, E]`.
    pub(super) fn forward(
        &self,
        normal: &[f32],
        tokens: Tokens<'_>,
        workspace: &mut Workspace,
        branch: Branch<'_>,
        x: &mut [f32],
    ) -> Result<(), StepError> {
        let Tokens { runs, ends } = tokens;
        let count = runs.iter().map(|run| run.length).sum::<usize>();
        let [mut queries, mut keys, mut values] =
            self.qkv.each_ref().map(|linear| workspace.buffers.take(count * linear.matrix.rows()));
        let mut gates = self.gate.as_ref().map(|gate| workspace.buffers.take(count * gate.matrix.rows()));
        let linears: Vec<&Linear> = self.qkv.iter().chain(&self.gate).collect();
        let mut outs: Vec<&mut [f32]> = vec![&mut queries, &mut keys, &mut values];
        outs.extend(gates.iter_mut().map(|gates| &mut **gates));
        workspace.multiply(normal, &linears, &mut outs)?;
        self.rotate(&mut queries, 0, count, workspace)?;
        self.rotate(&mut keys, 1, count, workspace)?;
        let store = workspace.kv.as_mut().ok_or(StepError::NoKvMemory)?;
        workspace.kernels.write(store, runs, KeysValues { layer: self.layer, keys: &keys, values: &values })?;
        let decoder::Attention { heads, scale, softcap, window, image_blocks, .. } = self.description;
        let attention = tandem_kernels::Attention {
            layer: self.layer,
            heads,
            scale,
            soft_cap: softcap,
            window,
            ends: ends.filter(|_| image_blocks),
            runs,
            queries: &queries,
        };
        let mut seen = workspace.buffers.take(queries.len());
        workspace.kernels.attend(store, &attention, &mut workspace.scratch, &mut seen)?;
        if let Some(gates) = &gates {
            workspace.kernels.gate(&mut seen, gates)?;
        }
        workspace.add(&seen, &self.output, branch, x)?;
        [queries, keys, values, seen].into_iter().chain(gates).for_each(|buffer| workspace.buffers.give(buffer));
        Ok(())
    }

    /// Normalizes and rotates the heads of queries (0) or keys (1), if the layer has a norm or a
    /// rotation.
    fn rotate(&self, x: &mut [f32], which: usize, tokens: usize, workspace: &Workspace) -> Result<(), StepError> {
        let norm = self.qk_norm[which].as_ref().map(RmsNorm::kernel);
        let angles = self.description.rope.map(|rope| &workspace.angles[rope]);
        if norm.is_none() && angles.is_none() {
            return Ok(());
        }
        Ok(workspace.kernels.rotate(x, tokens, Heads { head_dim: self.description.head_size, norm, angles })?)
    }
}
