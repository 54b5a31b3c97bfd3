//! Computes the model of a [`Decoder`] with libtorch, on any device.
//!
//! Shapes: T tokens of a call, R requested rows, E hidden size, V vocabulary.

use std::collections::BTreeSet;

use tandem_core::models::decoder::{self, Decoder};
use tandem_core::models::{DevicePart, ModelShape, SequenceChunk};
use tandem_core::weights::ModelFile;
use tch::{Device, Kind, Tensor};

use crate::device;
use crate::device::in_flight::InFlight;
use crate::device::upload::{Sent, Upload};
use crate::error::Error;
use crate::model::{DeviceRows, TorchModel};
use crate::placement::{PlacedLayers, Placement};
use crate::target::TorchTarget;

mod attend;
mod attention;
mod bucket;
mod bucketed;
mod buckets;
mod call;
mod check;
mod feed_forward;
mod flash;
mod grouped;
mod inputs;
mod layer;
mod layers;
pub(super) mod load;
mod mask;
mod methods;
mod packed;
mod paged;
mod part;
mod pieces;
mod reach;
mod rows;
mod runs;
mod stack;
mod step;
mod workspace;

pub use check::{AttentionCase, AttentionDifference};
pub use flash::{FLASH_BLOCK, FlashCall, FlashOperation};
use inputs::LayerInputs;
pub(super) use layer::attention_of;
use layers::{Linear, RmsNorm, scaled, softcap};
use load::Loader;
use methods::Methods;
use part::Part;
use rows::ProductRows;
use step::{Batch, PartInputs, StartInputs};
pub use workspace::Workspace;

/// A loaded model.
#[derive(Debug)]
pub(crate) struct TorchDecoder {
    description: Decoder,
    dtype: Kind,
    rows: ProductRows,
    /// `[V, E]`, on the first device.
    embeddings: Tensor,
    /// On the first device.
    layer_inputs: Option<LayerInputs>,
    /// The layers of each device, in the order of computation. At least one part.
    parts: Vec<Part>,
    /// On the last device.
    final_norm: RmsNorm,
    /// On the last device.
    head: Linear,
    /// The first and the last device.
    ends: [Device; 2],
}

/// The inputs of a step, each on the device that uses it.
struct StepInputs {
    start: StartInputs,
    parts: Vec<PartInputs>,
    /// `[R]`, the rows whose logits are requested, then padding. `None`: there are no such rows.
    wanted: Option<Tensor>,
    /// The numbers that the last device received.
    sent: Sent,
}

impl TorchDecoder {
    /// Loads the tensors, each onto its device. `flash` computes attention where it serves.
    pub(crate) fn load(
        description: Decoder,
        file: &ModelFile,
        target: TorchTarget,
        placement: &Placement,
        flash: Option<FlashOperation>,
    ) -> Result<Self, Error> {
        if target.batch_invariant {
            device::sum_precisely();
        }
        let in_flight = InFlight::default();
        let loader = |device| Loader::new(file, TorchTarget { device, ..target }, &in_flight);
        let ends = ends(placement, target.device);
        let [first, last] = ends.map(loader);
        let parts = load_parts(&description, placement, flash, loader)?;
        let embeddings = first.weight(&description.embeddings)?;
        let head = match &description.head {
            Some(head) => Linear::head(&last, head)?,
            None if parts.len() == 1 => Linear::tied(embeddings.shallow_clone(), target),
            None => Linear::tied(device::copied(&embeddings, ends[1])?, target),
        };
        Ok(Self {
            embeddings,
            layer_inputs: description.layer_inputs.as_ref().map(|it| LayerInputs::load(it, &first)).transpose()?,
            parts,
            final_norm: RmsNorm::load(&last, &description.final_norm)?,
            head,
            description,
            dtype: target.dtype,
            rows: ProductRows::of(target),
            ends,
        })
    }

    /// Sends the inputs of chunks in one upload to each device. The last device receives `upload` too.
    fn send(&self, chunks: &[SequenceChunk<'_>], upload: Upload) -> Result<StepInputs, Error> {
        let batch = Batch::new(chunks, self.rows);
        let last = self.parts.len() - 1;
        let mut uploads: Vec<Upload> = (0..last).map(|_| Upload::default()).chain([upload]).collect();
        let start = StartInputs::plan(&batch, (&self.description, self.dtype), &mut uploads[0]);
        let plan = |(part, upload): (&Part, &mut Upload)| part.plan(&batch, self.description.hidden, upload);
        let parts: Vec<_> = self.parts.iter().zip(&mut uploads).map(plan).collect();
        let wanted = batch.wanted();
        let wanted = (!wanted.is_empty()).then(|| uploads[last].add(wanted));
        let sent = uploads.into_iter().zip(&self.parts).map(|(upload, part)| upload.send(part.device()));
        let mut sent = sent.collect::<Result<Vec<Sent>, Error>>()?;
        Ok(StepInputs {
            start: start(&sent[0])?,
            parts: parts.into_iter().zip(&sent).map(|(part, sent)| part(sent)).collect::<Result<_, _>>()?,
            wanted: wanted.map(|wanted| sent[last].get(wanted)).transpose()?,
            sent: sent.swap_remove(last),
        })
    }

    /// Returns the hidden states `[T, E]`, before the final norm, on the last device.
    fn hidden(&self, start: &StartInputs, parts: Vec<PartInputs>) -> Result<Tensor, Error> {
        let mut x = self.embed(&start.ids)?;
        start.images.iter().try_for_each(|image| image.place(&x))?;
        let inputs = self.layer_inputs.as_ref().map(|inputs| inputs.forward(start.layer_ids(), &x)).transpose()?;
        for (part, own) in self.parts.iter().zip(parts) {
            x = part.forward(x, inputs.as_ref(), own)?;
        }
        Ok(x)
    }

    /// Returns the scaled embeddings: `[T] -> [T, E]`
    fn embed(&self, ids: &Tensor) -> Result<Tensor, Error> {
        let x = Tensor::f_embedding(&self.embeddings, ids, -1, false, false)?;
        scaled(x, f64::from(self.description.embed_scale))
    }

    /// Returns tokens of the last device on the first one, if the step needs them: `[n, 1]`
    fn on_first(&self, tokens: &Tensor) -> Result<Tensor, Error> {
        if self.parts.len() == 1 { Ok(tokens.shallow_clone()) } else { device::copied(tokens, self.ends[0]) }
    }

    /// `[R, E] -> [R, V]`
    fn logits(&self, rows: &Tensor) -> Result<Tensor, Error> {
        let decoder::LogitRule { scale, softcap: cap } = self.description.logits;
        let rows = self.head.forward(&self.final_norm.forward(rows)?)?.f_to_kind(Kind::Float)?;
        softcap(scaled(rows, f64::from(scale))?, cap)
    }
}

/// Returns the first and the last device.
fn ends(placement: &Placement, default: Device) -> [Device; 2] {
    let device = |part: Option<&PlacedLayers>| part.map_or(default, |part| part.device);
    [device(placement.parts().first()), device(placement.parts().last())]
}

/// Loads the layers of each device. Blocks of keys and values have the same positions on all devices.
fn load_parts<'a>(
    description: &Decoder,
    placement: &Placement,
    flash: Option<FlashOperation>,
    loader: impl Fn(Device) -> Loader<'a>,
) -> Result<Vec<Part>, Error> {
    let choose = |placed: &PlacedLayers| {
        let (layers, target) = (&description.layers[placed.layers.clone()], loader(placed.device).target());
        let sizes: BTreeSet<usize> =
            layers.iter().filter_map(decoder::Layer::attention).map(|attention| attention.head_size).collect();
        let flash = flash.and_then(|flash| flash.checked(&sizes, target));
        Methods::choose(layers, flash, target)
    };
    let methods: Vec<Methods> = placement.parts().iter().map(choose).collect();
    let block = methods.iter().map(Methods::block).max().unwrap_or_default();
    let part = |(placed, methods): (&PlacedLayers, Methods)| {
        Part::load(description, placed, methods.with_block(block), &loader(placed.device))
    };
    placement.parts().iter().zip(methods).map(part).collect()
}

impl TorchModel for TorchDecoder {
    fn shape(&self) -> ModelShape {
        let Decoder { vocabulary, context, .. } = self.description;
        let block = self.parts.first().map_or(0, Part::block);
        let block_bytes = self.parts.iter().map(Part::block_bytes).sum();
        ModelShape { vocabulary, context, block, block_bytes, state_bytes: 0 }
    }

    fn long_after(&self) -> Option<usize> {
        self.description.long_after()
    }

    fn allocate(&mut self, blocks: u32) -> Result<(), Error> {
        self.parts.iter_mut().try_for_each(|part| part.allocate(blocks))
    }

    fn free_cache(&mut self) {
        device::free_cache(self.ends[0]);
    }

    fn device_parts(&self) -> Vec<DevicePart> {
        self.parts.iter().map(Part::described).collect()
    }

    fn device(&self) -> Device {
        self.ends[1]
    }

    fn forward(
        &mut self,
        chunks: &[SequenceChunk<'_>],
        upload: Upload,
        chosen: Option<&Tensor>,
    ) -> Result<Option<DeviceRows>, Error> {
        let StepInputs { mut start, parts, wanted, sent } = self.send(chunks, upload)?;
        if let Some(tokens) = chosen.filter(|_| start.needs_tokens()) {
            start.insert(&self.on_first(tokens)?)?;
        }
        let hidden = self.hidden(&start, parts)?;
        let Some(wanted) = wanted else { return Ok(None) };
        let requested: usize = chunks.iter().map(|chunk| chunk.logit_rows().len()).sum();
        let rows = self.logits(&hidden.f_index_select(0, &wanted)?)?.f_narrow(0, 0, requested as i64)?;
        Ok(Some(DeviceRows { rows, sent }))
    }
}
