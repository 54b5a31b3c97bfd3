//! The adjacent layers that one device computes.
//!
//! Shapes: T tokens of a call, E hidden size, P size of a layer's input.

use std::ops::Range;

use tandem_core::models::DevicePart;
use tandem_core::models::decoder::{self, Decoder, Pairs};
use tch::{Device, Tensor};

use super::call::Call;
use super::layer::{Layer, LayerPlace};
use super::layers::Rope;
use super::load::Loader;
use super::methods::Methods;
use super::paged::{KvShape, PagedKv};
use super::step::{Batch, PartInputs};
use crate::device;
use crate::device::upload::{Later, Upload};
use crate::error::Error;
use crate::placement::PlacedLayers;

/// Layers with their keys and values.
#[derive(Debug)]
pub(super) struct Part {
    device: Device,
    /// The indexes of the layers in the model.
    range: Range<usize>,
    ropes: Vec<Rope>,
    /// The attention of the layers.
    methods: Methods,
    layers: Vec<Layer>,
    kv: PagedKv,
}

impl Part {
    pub(super) fn load(
        description: &Decoder,
        placed: &PlacedLayers,
        methods: Methods,
        loader: &Loader<'_>,
    ) -> Result<Self, Error> {
        let PlacedLayers { device, layers: range } = placed.clone();
        let own = &description.layers[range.clone()];
        let layer = |(index, layer): (usize, &decoder::Layer)| {
            let pairs = match layer.attention().map(|attention| attention.pairs) {
                Some(Pairs::Shared(source)) => source - range.start,
                _ => index,
            };
            Layer::load(layer, LayerPlace { index, pairs }, &methods, loader)
        };
        let layers = own.iter().enumerate().map(layer).collect::<Result<_, _>>()?;
        let rope = |(i, rope): (usize, &decoder::Rope)| {
            let rotated = description.attentions().find(|attention| attention.rope == Some(i));
            let size = rotated.map_or(2 * rope.frequencies.len(), |attention| attention.head_size);
            Rope::new(rope, size, loader.target())
        };
        Ok(Self {
            device,
            ropes: description.ropes.iter().enumerate().map(rope).collect::<Result<_, _>>()?,
            kv: PagedKv::new(KvShape::of(own, methods.block(), loader.target())),
            methods,
            layers,
            range,
        })
    }

    pub(super) fn device(&self) -> Device {
        self.device
    }

    /// Returns the positions of a block of keys and values.
    pub(super) fn block(&self) -> usize {
        self.methods.block()
    }

    /// Returns the bytes of a block of keys and values in these layers.
    pub(super) fn block_bytes(&self) -> u64 {
        self.kv.block_bytes()
    }

    pub(super) fn described(&self) -> DevicePart {
        DevicePart { gpu: device::gpu(self.device), layers: self.layers.len(), block_bytes: self.block_bytes() }
    }

    /// Allocates blocks of keys and values.
    pub(super) fn allocate(&mut self, blocks: u32) -> Result<(), Error> {
        self.kv.allocate(blocks)
    }

    /// Adds the inputs of the layers to the upload of their device. Rows of images have `hidden` numbers.
    pub(super) fn plan(&self, batch: &Batch<'_>, hidden: usize, upload: &mut Upload) -> Later<PartInputs> {
        PartInputs::plan(batch, (&self.range, hidden, self.methods.dtype()), &self.methods, upload)
    }

    /// Computes the layers, `[T, E] -> [T, E]`. Copies `x`, and the `inputs` of all layers `[T, layers, P]`,
    /// from the first device or the one before.
    pub(super) fn forward(&self, x: Tensor, inputs: Option<&Tensor>, own: PartInputs) -> Result<Tensor, Error> {
        let PartInputs { runs, deep, copies } = own;
        if let Some([from, to]) = &copies {
            self.kv.copy([from, to])?;
        }
        let mut x = self.own(x)?;
        let rotations =
            self.ropes.iter().map(|rope| rope.at(&runs.positions, runs.long.as_ref())).collect::<Result<_, _>>()?;
        let inputs = inputs.map(|inputs| self.own_inputs(inputs)).transpose()?;
        let call = Call { rotations, runs, kv: &self.kv, inputs };
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&x, &call)?;
            deep.iter().try_for_each(|image| image.deepen(&x, i))?;
        }
        Ok(x)
    }

    /// Returns the inputs of these layers.
    fn own_inputs(&self, inputs: &Tensor) -> Result<Tensor, Error> {
        self.own(inputs.f_narrow(1, self.range.start as i64, self.range.len() as i64)?)
    }

    /// Copies numbers of another device. The first device has its own.
    fn own(&self, numbers: Tensor) -> Result<Tensor, Error> {
        if self.range.start == 0 { Ok(numbers) } else { device::copied(&numbers, self.device) }
    }
}
