//! The division of a model's layers among devices, by their memory.
//!
//! Each device has adjacent layers, with their weights, keys and values. The first also has the
//! embeddings, the inputs of layers and the tower of images, the last the final norm and the head. A
//! layer that uses the keys and values of an earlier one is on the same device as that one.

use std::ops::Range;

use tandem_core::error::LoadError;
use tandem_core::models::decoder::{self, Decoder, Pairs};
use tch::Device;

use super::target::{TorchTarget, WeightBits};

/// The sizes of a model that libtorch computes, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Costs {
    /// The weights that only the first device has.
    pub first: u64,
    /// The layers, in the order of computation.
    pub layers: Vec<LayerCosts>,
    /// The weights that only the last device has.
    pub last: u64,
    /// The embedding table, if it is the head too. The last device of several has a copy.
    pub tied: u64,
}

/// The sizes of a layer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerCosts {
    pub weights: u64,
    /// The keys and values of one position.
    pub pairs: u64,
    /// The earlier layer whose keys and values the layer uses.
    pub source: Option<usize>,
}

/// The layers of each device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    parts: Vec<PlacedLayers>,
}

/// The layers of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedLayers {
    pub device: Device,
    /// The layers. At least one.
    pub layers: Range<usize>,
}

/// The best division of the first layers among the first devices.
#[derive(Debug, Clone)]
struct Division {
    /// The score of the device with the lowest.
    score: i128,
    /// The end of each device's layers.
    ends: Vec<usize>,
}

impl Costs {
    /// Returns the sizes of a model's weights, and of its keys and values. The embedding tables have the
    /// dtype.
    #[must_use]
    pub fn of(decoder: &Decoder, target: TorchTarget) -> Self {
        let full = 8 * target.dtype.elt_size_in_bytes() as u64;
        let (bits, head_bits) = match target.bits {
            WeightBits::Full => (full, full),
            WeightBits::Int8 => (8, 8),
            WeightBits::Int4 => (4 + full / 16, 8), // a scale and an offset for every 32
        };
        let table = bytes(decoder.embeddings.parameter_count(), full);
        let inputs = decoder.layer_inputs.as_ref().map_or(0, |inputs| {
            bytes(inputs.table.parameter_count(), full).saturating_add(bytes(inputs.projection.parameter_count(), bits))
        });
        let head = decoder.head.as_ref().map(|head| bytes(head.parameter_count(), head_bits));
        let layer = |layer: &decoder::Layer| LayerCosts::of(layer, bits, target);
        Self {
            first: table.saturating_add(inputs),
            layers: decoder.layers.iter().map(layer).collect(),
            last: bytes(decoder.final_norm.size as u64, full).saturating_add(head.unwrap_or(0)),
            tied: if head.is_none() { table } else { 0 },
        }
    }

    /// Returns the bytes of all weights, on one device.
    #[must_use]
    pub fn weights(&self) -> u64 {
        self.weights_of(&(0..self.layers.len()))
    }

    /// Returns the bytes of the weights of a device with these layers.
    #[must_use]
    pub fn weights_of(&self, layers: &Range<usize>) -> u64 {
        let (is_first, is_last) = (layers.start == 0, layers.end == self.layers.len());
        let first = if is_first { self.first } else { 0 };
        let last = if is_last { self.last } else { 0 };
        let tied = if is_last && !is_first { self.tied } else { 0 };
        let own = self.layers[layers.clone()].iter().map(|layer| layer.weights);
        own.chain([first, last, tied]).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of the keys and values of one position in these layers.
    #[must_use]
    pub fn pairs_of(&self, layers: &Range<usize>) -> u64 {
        self.layers[layers.clone()].iter().map(|layer| layer.pairs).sum()
    }

    /// Returns the layers at which a device's layers can start, and the number of layers.
    fn cuts(&self) -> Vec<usize> {
        let divides = |at: usize| self.layers[at..].iter().all(|layer| layer.source.is_none_or(|source| source >= at));
        (0..=self.layers.len()).filter(|&at| divides(at)).collect()
    }

    /// Returns how well a device with this many free bytes holds the layers: the positions of keys and
    /// values that fit with the weights, or less than zero, the bytes that are missing for the weights.
    fn score(&self, layers: &Range<usize>, free: u64) -> i128 {
        let left = i128::from(free) - i128::from(self.weights_of(layers));
        if left < 0 { left } else { left / i128::from(self.pairs_of(layers).max(1)) }
    }
}

impl LayerCosts {
    fn of(layer: &decoder::Layer, bits: u64, target: TorchTarget) -> Self {
        let weights = bytes(layer.parameter_count(), bits);
        let Some(attention) = layer.attention() else { return Self { weights, pairs: 0, source: None } };
        let numbers = 2 * (attention.kv_heads * attention.head_size) as u64;
        let pairs = numbers * target.dtype.elt_size_in_bytes() as u64;
        match attention.pairs {
            Pairs::Shared(source) => Self { weights, pairs: 0, source: Some(source) },
            Pairs::Computed | Pairs::KeysAsValues => Self { weights, pairs, source: None },
        }
    }
}

fn bytes(numbers: u64, bits: u64) -> u64 {
    numbers.saturating_mul(bits) / 8
}

impl Placement {
    /// Places all layers on one device.
    #[must_use]
    pub fn whole(device: Device, layers: usize) -> Self {
        Self { parts: vec![PlacedLayers { device, layers: 0..layers }] }
    }

    /// Divides the layers among devices with free bytes. The result has the most positions of keys and
    /// values, or, if some weights do not fit, the fewest missing bytes on one device.
    ///
    /// # Errors
    /// [`LoadError::TooManyDevices`].
    pub fn divide(costs: &Costs, devices: &[(Device, u64)]) -> Result<Self, LoadError> {
        let cuts = costs.cuts();
        let division = best(costs, &cuts, devices);
        let Division { ends, .. } = division
            .ok_or(LoadError::TooManyDevices { devices: devices.len(), limit: cuts.len().saturating_sub(1) })?;
        let starts = [0].into_iter().chain(ends.iter().copied());
        let part = |((&(device, _), start), &end): ((&(Device, u64), usize), &usize)| PlacedLayers {
            device,
            layers: start..end,
        };
        Ok(Self { parts: devices.iter().zip(starts).zip(&ends).map(part).collect() })
    }

    /// Returns the layers of each device, in the order of computation.
    #[must_use]
    pub fn parts(&self) -> &[PlacedLayers] {
        &self.parts
    }
}

/// Returns the best division of all layers among all devices, or None if there are fewer parts than
/// devices. Of equal divisions, the one is returned whose later devices start at the earlier layers.
fn best(costs: &Costs, cuts: &[usize], devices: &[(Device, u64)]) -> Option<Division> {
    // The best division of the layers up to each cut.
    let mut reached: Vec<Option<Division>> = vec![None; cuts.len()];
    *reached.first_mut()? = Some(Division { score: i128::MAX, ends: Vec::new() });
    for &(_, free) in devices {
        let up_to = |to: usize| {
            let extended = |from: usize| Some(reached[from].as_ref()?.extended(costs, cuts[from]..cuts[to], free));
            (0..to).filter_map(extended).reduce(|best, other| if other.score > best.score { other } else { best })
        };
        reached = (0..cuts.len()).map(up_to).collect();
    }
    reached.pop()?
}

impl Division {
    /// Adds a device with these layers.
    fn extended(&self, costs: &Costs, layers: Range<usize>, free: u64) -> Self {
        let score = self.score.min(costs.score(&layers, free));
        Self { score, ends: self.ends.iter().copied().chain([layers.end]).collect() }
    }
}
