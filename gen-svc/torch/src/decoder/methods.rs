//! The choice of the implementation of attention for each layer.

use tandem_core::cache::BLOCK;
use tandem_core::models::SequenceChunk;
use tandem_core::models::decoder;
use tch::Kind;

use super::attend::PagedAttention;
use super::bucketed::Buckets;
use super::flash::{FLASH_BLOCK, Flash, FlashOperation, FlashRules, HEAD_UNIT, LARGEST_HEAD};
use super::reach::Reach;
use super::workspace::{LargestLayer, Workspace};
use crate::device::upload::{Later, Upload};
use crate::target::TorchTarget;

/// The attention of some layers: their rules, and the implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Method {
    reach: Reach,
    /// The query heads per key/value head, if flash attention computes the layers.
    flash: Option<usize>,
}

/// The implementations that the layers of a device use.
#[derive(Debug)]
pub(super) struct Methods {
    /// Distinct, in order.
    methods: Vec<Method>,
    flash: Option<FlashOperation>,
    target: TorchTarget,
    /// The positions of a block.
    block: usize,
    largest: LargestLayer,
}

impl Methods {
    /// Chooses for each layer: flash attention where it is available and serves, else buckets. Logs the
    /// choice.
    pub(super) fn choose(layers: &[decoder::Layer], flash: Option<FlashOperation>, target: TorchTarget) -> Self {
        let largest = largest(layers, target);
        let mut chosen = Self { methods: Vec::new(), flash, target, block: BLOCK, largest };
        let mut methods: Vec<Method> =
            layers.iter().filter_map(decoder::Layer::attention).map(|attention| chosen.method(attention)).collect();
        methods.sort_unstable();
        for layers in methods.chunk_by(|a, b| a == b) {
            chosen.methods.push(layers[0]);
            log(layers, target);
        }
        if chosen.methods.iter().any(|method| method.flash.is_some()) {
            chosen.block = FLASH_BLOCK;
        }
        chosen
    }

    /// Sets the positions of a block, a multiple of the own one.
    pub(super) fn with_block(self, block: usize) -> Self {
        Self { block, ..self }
    }

    /// Returns the dtype of the layers.
    pub(super) fn dtype(&self) -> Kind {
        self.target.dtype
    }

    /// Returns the index of the layer's method.
    pub(super) fn index(&self, attention: &decoder::Attention) -> usize {
        let method = self.method(attention);
        self.methods.partition_point(|other| *other < method)
    }

    /// Returns the positions of a block.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    /// Prepares each method for the sorted chunks of a call.
    pub(super) fn plan(
        &self,
        chunks: &[SequenceChunk<'_>],
        upload: &mut Upload,
    ) -> Vec<Later<Box<dyn PagedAttention>>> {
        self.methods.iter().map(|method| method.plan(chunks, self, upload)).collect()
    }

    fn method(&self, attention: &decoder::Attention) -> Method {
        let serves = self.flash.is_some_and(|flash| flash.dtypes.contains(&self.target.dtype))
            && attention.softcap.is_none()
            && serves_head(attention.head_size);
        Method { reach: Reach::of(attention), flash: serves.then_some(attention.heads / attention.kv_heads) }
    }
}

impl Method {
    /// Flash attention has no masks of images: buckets compute the calls with image blocks.
    fn plan(
        self,
        chunks: &[SequenceChunk<'_>],
        methods: &Methods,
        upload: &mut Upload,
    ) -> Later<Box<dyn PagedAttention>> {
        let (block, target) = (methods.block(), methods.target);
        let has_blocks = self.reach.image_blocks() && chunks.iter().any(|chunk| !chunk.images.is_empty());
        match (self.flash, methods.flash) {
            (Some(group), Some(operation)) if !has_blocks => {
                let rules = FlashRules { window: self.reach.window(), group };
                let flash = Flash::plan(chunks, rules, block, operation, upload);
                Box::new(move |sent| Ok(Box::new(flash(sent)?)))
            }
            _ => {
                // Elsewhere, libtorch computes attention without its scores in memory.
                let keeps_scores = target.device.is_cuda() || self.reach.softcap().is_some();
                let workspace = Workspace::of(methods.largest, keeps_scores);
                let buckets = Buckets::plan(chunks, self.reach, block, (target, workspace), upload);
                Box::new(move |sent| Ok(Box::new(buckets(sent)?)))
            }
        }
    }
}

/// Returns true if flash attention serves heads of this size.
pub(super) fn serves_head(size: usize) -> bool {
    size <= LARGEST_HEAD && size.is_multiple_of(HEAD_UNIT)
}

fn largest(layers: &[decoder::Layer], target: TorchTarget) -> LargestLayer {
    let most = |of: fn(&decoder::Attention) -> usize| {
        layers.iter().filter_map(decoder::Layer::attention).map(of).max().unwrap_or(0)
    };
    let numbers = most(|attention| 2 * attention.kv_heads * attention.head_size);
    LargestLayer { heads: most(|attention| attention.heads), pair_bytes: numbers * target.dtype.elt_size_in_bytes() }
}

/// Logs the method of some layers.
fn log(layers: &[Method], target: TorchTarget) {
    let Method { reach, flash } = layers[0];
    let method = if flash.is_some() { "flash" } else { "buckets" };
    let (window, image_blocks) = (reach.window(), reach.image_blocks());
    let device = target.device;
    tracing::info!(?device, layers = layers.len(), method, window, image_blocks, "attention chosen");
}
