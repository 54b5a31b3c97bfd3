//! One layer of a model.
//!
//! Shapes: T tokens of a call, E hidden size.

use tandem_core::error::LoadError;
use tandem_core::models::decoder;
use tch::Tensor;

use super::attention::Attention;
use super::call::Call;
use super::feed_forward::FeedForward;
use super::inputs::InputBranch;
use super::layers::{RmsNorm, scaled};
use super::load::Loader;
use super::methods::Methods;
use crate::error::Error;

/// The place of a layer among the layers of its device.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerPlace {
    /// The index of the layer.
    pub(super) index: usize,
    /// The index of the layer whose keys and values it uses: its own, or an earlier one.
    pub(super) pairs: usize,
}

/// Returns the attention of a layer.
///
/// # Errors
/// [`LoadError::PartOfModel`]: the layer has something else, which libtorch does not compute.
pub(crate) fn attention_of(layer: &decoder::Layer) -> Result<&decoder::Attention, LoadError> {
    let unsupported = |part| Err(LoadError::PartOfModel { backend: "libtorch", part, remedy: ": use --device cpu" });
    if matches!(&layer.feed_forward, decoder::FeedForward::Experts(experts) if experts.shared.is_some()) {
        return unsupported("experts of all tokens");
    }
    match &layer.mixer {
        decoder::Mixer::Attention(attention) if attention.is_gated => unsupported("gated attention"),
        decoder::Mixer::Attention(attention) => Ok(attention),
        decoder::Mixer::DeltaNet(_) => unsupported("linear attention (gated DeltaNet)"),
    }
}

/// A layer on a device.
#[derive(Debug)]
pub(super) struct Layer {
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

impl Layer {
    /// Loads the layer at `place`, whose attention uses one of `methods`.
    pub(super) fn load(
        layer: &decoder::Layer,
        place: LayerPlace,
        methods: &Methods,
        loader: &Loader<'_>,
    ) -> Result<Self, Error> {
        let norm = |norm: &decoder::Norm| RmsNorm::load(loader, norm);
        let decoder::Norms { before_attention, after_attention, before_feed_forward, after_feed_forward } =
            &layer.norms;
        let attention = attention_of(layer)?;
        let method = methods.index(attention);
        Ok(Self {
            before_attention: norm(before_attention)?,
            attention: Attention::load(attention, place.pairs, method, loader)?,
            after_attention: after_attention.as_ref().map(norm).transpose()?,
            before_feed_forward: norm(before_feed_forward)?,
            feed_forward: FeedForward::load(&layer.feed_forward, loader)?,
            after_feed_forward: after_feed_forward.as_ref().map(norm).transpose()?,
            residual_scale: f64::from(layer.residual_scale),
            input: match &layer.input {
                Some(input) => Some((place.index, InputBranch::load(input, loader)?)),
                None => None,
            },
            scale: layer.scale.as_ref().map(|name| loader.tensor(name, &[1])).transpose()?,
        })
    }

    /// `[T, E] -> [T, E]`
    pub(super) fn forward(&self, x: &Tensor, call: &Call<'_>) -> Result<Tensor, Error> {
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
