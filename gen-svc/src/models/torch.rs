//! Computes the model of a [`Decoder`] with libtorch, on any device.
//!
//! Shapes: T tokens of a call, R requested rows, E hidden size, V vocabulary.

use tch::{Device, Kind, Tensor};

use super::decoder::{self, Decoder};
use super::interface::{DeviceRows, Logits, Model, ModelShape, SequenceChunk};
use crate::device;
use crate::error::Error;
use crate::weights::{ModelFile, TorchTarget};

mod attend;
mod attention;
mod bucket;
mod bucketed;
mod buckets;
mod call;
mod check;
mod feed_forward;
mod flash;
mod inputs;
mod layers;
pub(super) mod load;
mod methods;
mod packed;
mod paged;
mod pieces;
mod reach;
mod rows;
mod runs;
mod stack;
mod step;

use attention::Attention;
use call::Call;
pub use check::{AttentionCase, AttentionDifference};
use feed_forward::FeedForward;
pub use flash::{FLASH_BLOCK, FlashCall, FlashOperation};
use inputs::{InputBranch, LayerInputs};
use layers::{Linear, RmsNorm, Rope, scaled, softcap};
use load::Loader;
use methods::Methods;
use paged::{KvShape, PagedKv};
use step::StepInputs;

/// A loaded model.
#[derive(Debug)]
pub(super) struct TorchDecoder {
    description: Decoder,
    target: TorchTarget,
    /// `[V, E]`
    embeddings: Tensor,
    layer_inputs: Option<LayerInputs>,
    ropes: Vec<Rope>,
    /// The attention of the layers.
    methods: Methods,
    layers: Vec<Layer>,
    final_norm: RmsNorm,
    head: Linear,
    kv: PagedKv,
}

#[derive(Debug)]
struct Layer {
    before_attention: RmsNorm,
    attention: Attention,
    after_attention: Option<RmsNorm>,
    before_feed_forward: RmsNorm,
    feed_forward: FeedForward,
    after_feed_forward: Option<RmsNorm>,
    residual_scale: f64,
    /// The index of the layer, and the branch of its input.
    input: Option<(usize, InputBranch)>,
    /// `[1]`
    scale: Option<Tensor>,
}

impl TorchDecoder {
    /// Loads the tensors. `flash` computes attention where it serves.
    pub(super) fn load(
        description: Decoder,
        file: &ModelFile,
        target: TorchTarget,
        flash: Option<FlashOperation>,
    ) -> Result<Self, Error> {
        if target.batch_invariant {
            device::sum_precisely();
        }
        let loader = Loader::new(file, target);
        let flash = flash.and_then(|flash| flash.checked(target));
        let methods = Methods::choose(&description.layers, flash, target);
        let embeddings = loader.weight(&description.embeddings)?;
        let head = match &description.head {
            Some(head) => Linear::head(&loader, head)?,
            None => Linear::tied(&embeddings, target),
        };
        let layer =
            |(i, layer): (usize, &decoder::Layer)| Layer::load(layer, i, methods.index(&layer.attention), &loader);
        let rope = |(i, rope): (usize, &decoder::Rope)| {
            let rotated = description.layers.iter().find(|layer| layer.attention.rope == Some(i));
            Rope::new(rope, rotated.map_or(2 * rope.frequencies.len(), |layer| layer.attention.head_size), target)
        };
        Ok(Self {
            embeddings,
            layer_inputs: description.layer_inputs.as_ref().map(|it| LayerInputs::load(it, &loader)).transpose()?,
            ropes: description.ropes.iter().enumerate().map(rope).collect::<Result<_, _>>()?,
            layers: description.layers.iter().enumerate().map(layer).collect::<Result<_, _>>()?,
            final_norm: RmsNorm::load(&loader, &description.final_norm)?,
            head,
            kv: PagedKv::new(KvShape::of(&description, methods.block(), target)),
            methods,
            description,
            target,
        })
    }

    /// Returns the hidden states `[T, E]`, before the final norm.
    fn hidden(&self, step: StepInputs) -> Result<Tensor, Error> {
        let mut x = self.embed(&step.ids)?;
        step.images.iter().try_for_each(|image| image.place(&x))?;
        let inputs = self.layer_inputs.as_ref().map(|inputs| inputs.forward(step.layer_ids(), &x)).transpose()?;
        let StepInputs { images, runs, .. } = step;
        let rotations = self.ropes.iter().map(|rope| rope.at(&runs.positions)).collect::<Result<_, _>>()?;
        let call = Call { rotations, runs, kv: &self.kv, inputs };
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&x, &call)?;
            images.iter().try_for_each(|image| image.deepen(&x, i))?;
        }
        Ok(x)
    }

    /// Returns the scaled embeddings: `[T] -> [T, E]`
    fn embed(&self, ids: &Tensor) -> Result<Tensor, Error> {
        let x = Tensor::f_embedding(&self.embeddings, ids, -1, false, false)?;
        scaled(x, f64::from(self.description.embed_scale))
    }

    /// `[R, E] -> [R, V]`
    fn logits(&self, rows: &Tensor) -> Result<Tensor, Error> {
        let decoder::LogitRule { scale, softcap: cap } = self.description.logits;
        let rows = self.head.forward(&self.final_norm.forward(rows)?)?.f_to_kind(Kind::Float)?;
        softcap(scaled(rows, f64::from(scale))?, cap)
    }
}

impl Layer {
    fn load(layer: &decoder::Layer, index: usize, method: usize, loader: &Loader<'_>) -> Result<Self, Error> {
        let norm = |norm: &decoder::Norm| RmsNorm::load(loader, norm);
        let decoder::Norms { before_attention, after_attention, before_feed_forward, after_feed_forward } =
            &layer.norms;
        Ok(Self {
            before_attention: norm(before_attention)?,
            attention: Attention::load(&layer.attention, index, method, loader)?,
            after_attention: after_attention.as_ref().map(norm).transpose()?,
            before_feed_forward: norm(before_feed_forward)?,
            feed_forward: FeedForward::load(&layer.feed_forward, loader)?,
            after_feed_forward: after_feed_forward.as_ref().map(norm).transpose()?,
            residual_scale: f64::from(layer.residual_scale),
            input: match &layer.input {
                Some(input) => Some((index, InputBranch::load(input, loader)?)),
                None => None,
            },
            scale: layer.scale.as_ref().map(|name| loader.tensor(name, &[1])).transpose()?,
        })
    }

    /// `[T, E] -> [T, E]`
    fn forward(&self, x: &Tensor, call: &Call<'_>) -> Result<Tensor, Error> {
        let attended = self.attention.forward(&self.before_attention.forward(x)?, call)?;
        let x = self.add(x, attended, self.after_attention.as_ref())?;
        let fed = self.feed_forward.forward(&self.before_feed_forward.forward(&x)?)?;
        let mut x = self.add(&x, fed, self.after_feed_forward.as_ref())?;
        if let (Some((layer, input)), Some(inputs)) = (&self.input, &call.inputs) {
            x = x.f_add(&input.forward(&x, &inputs.f_select(1, *layer as i64)?)?)?;
        }
        match &self.scale {
            None => Ok(x),
            Some(scale) => Ok(x.f_mul(scale)?),
        }
    }

    /// Adds the output of attention or feed-forward to `x`, after its norm if the model has one.
    fn add(&self, x: &Tensor, branch: Tensor, norm: Option<&RmsNorm>) -> Result<Tensor, Error> {
        let branch = norm.map_or(Ok(branch.shallow_clone()), |norm| norm.forward(&branch))?;
        Ok(x.f_add(&scaled(branch, self.residual_scale)?)?)
    }
}

impl Model for TorchDecoder {
    fn shape(&self) -> ModelShape {
        let Decoder { vocabulary, context, .. } = self.description;
        ModelShape { vocabulary, context, block: self.kv.block(), block_bytes: self.kv.block_bytes() }
    }

    fn allocate(&mut self, blocks: u32) -> Result<(), Error> {
        self.kv.allocate(blocks)
    }

    fn free_cache(&mut self) {
        device::free_cache(self.target.device);
    }

    fn rows_device(&self) -> Option<Device> {
        Some(self.target.device)
    }

    fn forward(&mut self, chunks: &[SequenceChunk<'_>], logits: &mut Logits) -> Result<(), Error> {
        let (stays, mut upload) = (logits.may_stay(), logits.take_upload().unwrap_or_default());
        let inputs = StepInputs::plan(chunks, (&self.description, self.target), &self.methods, &mut upload);
        let sent = upload.send(self.target.device)?;
        let mut inputs = inputs(&sent)?;
        logits.chosen().map_or(Ok(()), |tokens| inputs.insert(tokens))?;
        if let Some([from, to]) = &inputs.copies {
            self.kv.copy([from, to])?;
        }
        let (wanted, vocabulary) = (inputs.wanted.take(), self.description.vocabulary);
        let hidden = self.hidden(inputs)?;
        let Some(wanted) = wanted else {
            logits.resize(0, vocabulary);
            return Ok(());
        };
        let requested: usize = chunks.iter().map(|chunk| chunk.logit_rows().len()).sum();
        let rows = self.logits(&hidden.f_index_select(0, &wanted)?)?.f_narrow(0, 0, requested as i64)?;
        if stays {
            logits.keep_with(DeviceRows { rows, sent });
            return Ok(());
        }
        let values = logits.resize(requested, vocabulary);
        Ok(rows.f_to_device(Device::Cpu)?.f_copy_data(values, values.len())?)
    }
}
