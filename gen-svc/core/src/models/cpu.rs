//! Computes the model of a [`Decoder`] on the CPU, with the kernels of this project. Quantized
//! weights stay quantized. The results of a token depend only on the token and its sequence, to the
//! bit.
//!
//! Shapes: T tokens of a call, R requested rows, E hidden size, V vocabulary.

use tandem_kernels::{
    Angles, Int8Rows, IsaLevel, Kernels, KvRun, KvShape, KvStore, Linear as Factor, Matrix, Scratch, StateShape,
    StateStep, StateStore, vocab,
};

use super::backend::Backend;
use super::decoder::{self, Attention as AttentionRule, Decoder, LogitRule, Pairs};
use super::host::HostBackend;
use super::images;
use super::interface::{Logits, Model, ModelShape, SequenceChunk};
use crate::cache::{BLOCK, CacheSize};
use crate::error::{LoadError, StepError};
use crate::weights::ModelFile;

mod attention;
mod buffers;
mod delta_net;
mod feed_forward;
mod load;
mod parts;
mod workspace;

use attention::Attention;
use buffers::Buffers;
use delta_net::DeltaNet;
use feed_forward::FeedForward;
use load::Loader;
pub use load::Precision;
use parts::{Linear, RmsNorm};
use workspace::{Branch, Tokens, Workspace};

/// A loaded model.
#[derive(Debug)]
pub struct CpuDecoder {
    description: Decoder,
    /// `[V, E]`
    embeddings: Matrix,
    layers: Vec<Layer>,
    final_norm: RmsNorm,
    /// `None`: the embedding table.
    head: Option<Linear>,
    kv_shape: KvShape,
    /// `None`: the model has no recurrent states.
    state_shape: Option<StateShape>,
    /// `None` until they are allocated.
    states: Option<StateStore>,
    workspace: Workspace,
}

#[derive(Debug)]
struct Layer {
    before_attention: RmsNorm,
    mixer: Mixer,
    after_attention: Option<RmsNorm>,
    before_feed_forward: RmsNorm,
    feed_forward: FeedForward,
    after_feed_forward: Option<RmsNorm>,
    residual_scale: f32,
}

#[derive(Debug)]
enum Mixer {
    Attention(Box<Attention>),
    DeltaNet(Box<DeltaNet>),
}

impl CpuDecoder {
    /// Returns true if the kernels support the size of the heads, and every part of the layers.
    pub fn can_compute(description: &Decoder) -> bool {
        let shape = kv_shape(description, Precision::F32);
        let supports = |attention: &AttentionRule| {
            let AttentionRule { kv_heads, head_size, pairs, value_epsilon, .. } = attention;
            (*kv_heads, *head_size) == (shape.heads, shape.head_dim)
                && (*pairs, *value_epsilon) == (Pairs::Computed, None)
        };
        let has_states = description.delta_nets().next().is_some();
        let states = delta_net::state_shape(description).map(|shape| shape.slot_bytes());
        shape.block_bytes().is_ok()
            && description.attentions().all(supports)
            && description.layers.iter().all(|layer| layer.input.is_none() && layer.scale.is_none())
            && (!has_states || states.is_some_and(|bytes| bytes.is_ok()))
    }

    /// Loads the described model, and returns its backend.
    ///
    /// # Errors
    /// A tensor cannot be read, or there is no memory.
    pub fn backend(
        description: Decoder,
        file: &ModelFile,
        precision: Precision,
        threads: usize,
    ) -> Result<Box<dyn Backend>, LoadError> {
        let kernels = Kernels::new(threads, IsaLevel::detect());
        let model = Self::load(description, file, kernels, precision)?;
        Ok(Box::new(HostBackend::new(Box::new(model))))
    }

    /// Reads and packs the tensors.
    pub fn load(
        description: Decoder,
        file: &ModelFile,
        kernels: Kernels,
        precision: Precision,
    ) -> Result<Self, LoadError> {
        let loader = Loader::new(file, &kernels, precision);
        let kv_shape = kv_shape(&description, precision);
        Ok(Self {
            embeddings: loader.table(&description.embeddings)?,
            head: description.head.as_ref().map(|head| loader.head(head)).transpose()?,
            layers: load_layers(&description.layers, &loader)?,
            final_norm: loader.norm(&description.final_norm)?,
            kv_shape,
            state_shape: delta_net::state_shape(&description),
            states: None,
            workspace: Workspace {
                angles: description.ropes.iter().map(|_| Angles::default()).collect(),
                kv: None,
                integers: Int8Rows::default(),
                scratch: Scratch::default(),
                buffers: Buffers::default(),
                kernels,
            },
            description,
        })
    }

    /// `[T, E]`, before the last norm.
    fn hidden(&mut self, chunks: &[SequenceChunk<'_>]) -> Result<Vec<f32>, StepError> {
        let ids: Vec<u32> = chunks.iter().flat_map(|chunk| chunk.tokens).copied().collect();
        let numbers = |chunk: &SequenceChunk<'_>| chunk.blocks.iter().map(|block| block.0).collect();
        let blocks: Vec<Vec<u32>> = chunks.iter().map(numbers).collect();
        let with_blocks = chunks.iter().zip(&blocks);
        let runs: Vec<KvRun<'_>> =
            with_blocks.map(|(chunk, blocks)| KvRun { past: chunk.past, length: chunk.tokens.len(), blocks }).collect();
        for (angles, rope) in self.workspace.angles.iter_mut().zip(&self.description.ropes) {
            angles.clear(rope.frequencies.len());
            for chunk in chunks {
                angles.extend(rope.of(chunk.is_long), rope.axes.as_deref(), rope.scale, chunk.axes());
            }
        }
        let ends = self.description.has_image_blocks().then(|| images::ends(chunks)).flatten();
        let tokens = Tokens { runs: &runs, ends: ends.as_deref() };
        let mut x = vec![0.0; ids.len() * self.description.hidden];
        self.workspace.kernels.embed(&self.embeddings, &ids, self.description.embed_scale, &mut x)?;
        images::place(&mut x, chunks, self.description.hidden);
        let saves = delta_net::saves(chunks);
        let state_runs = if self.states.is_some() { delta_net::runs(chunks, &saves)? } else { Vec::new() };
        let mut step = self.states.as_mut().map(|states| states.begin(&state_runs)).transpose()?;
        for (i, layer) in self.layers.iter().enumerate() {
            layer.forward(&mut x, tokens, step.as_mut(), &mut self.workspace)?;
            images::deepen(&mut x, chunks, self.description.hidden, i);
        }
        step.map(StateStep::finish).transpose()?;
        Ok(x)
    }

    /// `[R, E] -> [R, V]`
    fn logits(&mut self, rows: &[f32], out: &mut [f32]) -> Result<(), StepError> {
        let LogitRule { scale, softcap } = self.description.logits;
        let normal = self.final_norm.forward(rows, &self.workspace.kernels, &mut self.workspace.buffers)?;
        match &self.head {
            Some(head) => self.workspace.multiply(&normal, &[head], &mut [&mut *out])?,
            None => {
                let table = Factor { matrix: &self.embeddings, bias: None };
                self.workspace.multiply_by(&normal, &[table], &mut [&mut *out])?;
            }
        }
        self.workspace.buffers.give(normal);
        let level = self.workspace.kernels.level();
        for row in out.chunks_exact_mut(self.description.vocabulary) {
            if scale != 1.0 {
                vocab::scale(level, row, scale);
            }
            if let Some(cap) = softcap {
                vocab::soft_cap(level, row, cap);
            }
        }
        Ok(())
    }
}

/// Loads layers in the order of computation, so that weights are next to each other in memory as they are read.
fn load_layers(layers: &[decoder::Layer], loader: &Loader<'_>) -> Result<Vec<Layer>, LoadError> {
    let (mut attentions, mut delta_nets) = (0.., 0..);
    let load = |layer: &decoder::Layer| {
        let index = match &layer.mixer {
            decoder::Mixer::Attention(_) => attentions.next(),
            decoder::Mixer::DeltaNet(_) => delta_nets.next(),
        };
        Layer::load(layer, index.unwrap_or_default(), loader)
    };
    layers.iter().map(load).collect()
}

impl Mixer {
    /// Loads the mixer that is number `index` of its kind.
    fn load(mixer: &decoder::Mixer, index: usize, loader: &Loader<'_>) -> Result<Self, LoadError> {
        Ok(match mixer {
            decoder::Mixer::Attention(attention) => {
                Self::Attention(Box::new(Attention::load(attention, index, loader)?))
            }
            decoder::Mixer::DeltaNet(delta_net) => Self::DeltaNet(Box::new(DeltaNet::load(delta_net, index, loader)?)),
        })
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.bytes(),
            Self::DeltaNet(delta_net) => delta_net.bytes(),
        }
    }
}

impl Layer {
    fn load(layer: &decoder::Layer, index: usize, loader: &Loader<'_>) -> Result<Self, LoadError> {
        let norm = |norm: &decoder::Norm| loader.norm(norm);
        let decoder::Norms { before_attention, after_attention, before_feed_forward, after_feed_forward } =
            &layer.norms;
        Ok(Self {
            before_attention: norm(before_attention)?,
            mixer: Mixer::load(&layer.mixer, index, loader)?,
            after_attention: after_attention.as_ref().map(norm).transpose()?,
            before_feed_forward: norm(before_feed_forward)?,
            feed_forward: FeedForward::load(&layer.feed_forward, loader)?,
            after_feed_forward: after_feed_forward.as_ref().map(norm).transpose()?,
            residual_scale: layer.residual_scale,
        })
    }

    /// Adds both branches to `x`, `[T, E]`.
    fn forward(
        &self,
        x: &mut [f32],
        tokens: Tokens<'_>,
        step: Option<&mut StateStep<'_>>,
        workspace: &mut Workspace,
    ) -> Result<(), StepError> {
        let scale = self.residual_scale;
        let normal = self.before_attention.forward(x, &workspace.kernels, &mut workspace.buffers)?;
        let branch = Branch { norm: self.after_attention.as_ref(), scale };
        match &self.mixer {
            Mixer::Attention(attention) => attention.forward(&normal, tokens, workspace, branch, x)?,
            Mixer::DeltaNet(delta_net) => {
                delta_net.forward(&normal, step.ok_or(StepError::NoKvMemory)?, workspace, branch, x)?;
            }
        }
        workspace.buffers.give(normal);
        let normal = self.before_feed_forward.forward(x, &workspace.kernels, &mut workspace.buffers)?;
        self.feed_forward.forward(&normal, workspace, Branch { norm: self.after_feed_forward.as_ref(), scale }, x)?;
        workspace.buffers.give(normal);
        Ok(())
    }
}

/// Returns the shape of the KV cache, which all layers share.
fn kv_shape(description: &Decoder, precision: Precision) -> KvShape {
    let (heads, head_dim) =
        description.attentions().next().map_or((1, 8), |attention| (attention.kv_heads, attention.head_size));
    KvShape { layers: description.attentions().count(), blocks: 0, heads, head_dim, format: precision.kv() }
}

impl Model for CpuDecoder {
    fn shape(&self) -> ModelShape {
        let Decoder { vocabulary, context, .. } = self.description;
        let block_bytes = self.kv_shape.block_bytes().map_or(u64::MAX, |bytes| bytes as u64);
        let bytes = |shape: &StateShape| shape.slot_bytes().map_or(u64::MAX, |bytes| bytes as u64);
        let state_bytes = self.state_shape.as_ref().map_or(0, bytes);
        ModelShape { vocabulary, context, block: BLOCK, block_bytes, state_bytes }
    }

    fn weight_bytes(&self) -> Option<u64> {
        let layers = self.layers.iter().map(|layer| layer.mixer.bytes() + layer.feed_forward.bytes());
        let outer = self.embeddings.bytes() + self.head.as_ref().map_or(0, Linear::bytes);
        Some((layers.sum::<usize>() + outer) as u64)
    }

    fn long_after(&self) -> Option<usize> {
        self.description.long_after()
    }

    fn allocate(&mut self, CacheSize { blocks, states }: CacheSize) -> Result<(), StepError> {
        self.workspace.kv = Some(KvStore::new(KvShape { blocks: blocks as usize, ..self.kv_shape })?);
        let store = |shape| StateStore::new(StateShape { slots: states as usize, ..shape });
        self.states = self.state_shape.map(store).transpose()?;
        Ok(())
    }

    fn forward(&mut self, chunks: &[SequenceChunk<'_>], logits: &mut Logits) -> Result<(), StepError> {
        let hidden = self.hidden(chunks)?;
        let width = self.description.hidden;
        let (mut rows, mut start) = (Vec::new(), 0);
        for chunk in chunks {
            let wanted = chunk.logit_rows();
            rows.extend_from_slice(&hidden[(start + wanted.start) * width..(start + wanted.end) * width]);
            start += chunk.tokens.len();
        }
        let out = logits.resize(rows.len() / width, self.description.vocabulary);
        if rows.is_empty() { Ok(()) } else { self.logits(&rows, out) }
    }
}
