//! The inputs of a step, which travel to the device in one upload.
//!
//! Shapes: T tokens of a step, R requested rows, E hidden size.

use tch::{Kind, Tensor};

use super::methods::Methods;
use super::paged::copied_slots;
use super::rows::ProductRows;
use super::runs::{self, Runs};
use crate::cache::BlockCopy;
use crate::device::upload::{Later, Upload};
use crate::error::Error;
use crate::models::decoder::Decoder;
use crate::models::images::images;
use crate::models::{ImageRows, SequenceChunk};
use crate::weights::TorchTarget;

/// The inputs on the device.
#[derive(Debug)]
pub(super) struct StepInputs {
    /// `[T]`
    pub(super) ids: Tensor,
    /// `[T]`, for the inputs of single layers: images have the model's own token for them. `None`: there
    /// are no images.
    layer_ids: Option<Tensor>,
    pub(super) images: Vec<ImageInputs>,
    pub(super) runs: Runs,
    /// Slots that are copied before the step: from, to.
    pub(super) copies: Option<[Tensor; 2]>,
    /// Indexes among the T tokens, and the indexes of their ids among the choices of the last step.
    chosen: Option<[Tensor; 2]>,
    /// `[R]`, the rows whose logits are requested, then padding. `None`: there are no such rows.
    pub(super) wanted: Option<Tensor>,
}

/// The features of adjacent image tokens.
#[derive(Debug)]
pub(super) struct ImageInputs {
    /// The first row among all tokens.
    first: i64,
    /// `[n, E]`
    rows: Tensor,
    /// `[n, E]` for each of the first layers.
    deep: Vec<Tensor>,
}

impl StepInputs {
    /// Adds the inputs of chunks to an upload. The step computes them in [order](runs::order), then padding if
    /// products need it.
    pub(super) fn plan(
        chunks: &[SequenceChunk<'_>],
        (description, target): (&Decoder, TorchTarget),
        methods: &Methods,
        upload: &mut Upload,
    ) -> Later<Self> {
        let order = runs::order(chunks);
        let sorted: Vec<SequenceChunk<'_>> = order.iter().map(|&i| chunks[i]).collect();
        let rows = ProductRows::of(target);
        let mut ids: Vec<i64> = sorted.iter().flat_map(|chunk| chunk.tokens).map(|&id| i64::from(id)).collect();
        let padding = rows.padded(ids.len()) - ids.len();
        ids.resize(ids.len() + padding, 0);
        let layer_ids = layer_ids(&sorted, &ids, description).map(|ids| upload.add(ids));
        let ids = upload.add(ids);
        let (width, images) = (description.hidden as i64, images(&sorted));
        let images: Vec<_> =
            images.map(|(first, image)| ImageInputs::plan(first, image, width, target.dtype, upload)).collect();
        let runs = Runs::plan(&sorted, padding, methods, upload);
        let copies = copies(chunks, methods.block(), upload);
        let chosen = chosen(&sorted, upload);
        let mut wanted = wanted(chunks, &order);
        wanted.resize(rows.padded(wanted.len()), 0);
        let wanted = (!wanted.is_empty()).then(|| upload.add(wanted));
        Box::new(move |sent| {
            Ok(Self {
                ids: sent.get(ids)?,
                layer_ids: layer_ids.map(|ids| sent.get(ids)).transpose()?,
                images: images.into_iter().map(|image| image(sent)).collect::<Result<_, _>>()?,
                runs: runs(sent)?,
                copies: copies.map(|copies| copies(sent)).transpose()?,
                chosen: chosen.map(|chosen| chosen(sent)).transpose()?,
                wanted: wanted.map(|wanted| sent.get(wanted)).transpose()?,
            })
        })
    }
}

impl StepInputs {
    /// Inserts tokens of the step before, `[n, 1]`.
    pub(super) fn insert(&mut self, tokens: &Tensor) -> Result<(), Error> {
        let Some([places, indexes]) = &self.chosen else { return Ok(()) };
        let tokens = tokens.f_view([-1])?.f_index_select(0, indexes)?;
        for ids in [Some(&mut self.ids), self.layer_ids.as_mut()].into_iter().flatten() {
            drop(ids.f_index_copy_(0, places, &tokens)?);
        }
        Ok(())
    }

    /// Returns the tokens for the inputs of single layers, `[T]`.
    pub(super) fn layer_ids(&self) -> &Tensor {
        self.layer_ids.as_ref().unwrap_or(&self.ids)
    }
}

impl ImageInputs {
    fn plan(first: usize, image: &ImageRows<'_>, width: i64, dtype: Kind, upload: &mut Upload) -> Later<Self> {
        let first = (first + image.start) as i64;
        let rows = upload.add(image.rows.iter().copied());
        let deep: Vec<_> = image.deep.iter().map(|deep| upload.add(deep.iter().copied())).collect();
        Box::new(move |sent| {
            let cut = |part| Ok::<_, Error>(sent.get(part)?.f_view([-1, width])?.f_to_kind(dtype)?);
            Ok(Self { first, rows: cut(rows)?, deep: deep.into_iter().map(cut).collect::<Result<_, _>>()? })
        })
    }

    /// Replaces the rows of the image in `x`, `[T, E]`.
    pub(super) fn place(&self, x: &Tensor) -> Result<(), Error> {
        Ok(x.f_narrow(0, self.first, self.rows.size()[0])?.f_copy_(&self.rows)?)
    }

    /// Adds the deep features for layer `layer` to the rows of the image in `x`, `[T, E]`.
    pub(super) fn deepen(&self, x: &Tensor, layer: usize) -> Result<(), Error> {
        let Some(deep) = self.deep.get(layer) else { return Ok(()) };
        drop(x.f_narrow(0, self.first, deep.size()[0])?.f_add_(deep)?);
        Ok(())
    }
}

/// Returns the tokens for the inputs of single layers, if they differ.
fn layer_ids(chunks: &[SequenceChunk<'_>], ids: &[i64], description: &Decoder) -> Option<Vec<i64>> {
    let image_token = description.layer_inputs.as_ref()?.image_token;
    let mut ids = ids.to_vec();
    let mut is_changed = false;
    for (first, image) in images(chunks) {
        ids[first..][image.tokens(description.hidden)].fill(i64::from(image_token));
        is_changed = true;
    }
    is_changed.then_some(ids)
}

/// Plans the copies that precede the step, if there are any. Blocks have `positions` positions.
fn copies(chunks: &[SequenceChunk<'_>], positions: usize, upload: &mut Upload) -> Option<Later<[Tensor; 2]>> {
    let copies: Vec<BlockCopy> = chunks.iter().filter_map(|chunk| chunk.copy).collect();
    let from = upload.add(copies.iter().flat_map(|&copy| copied_slots(copy.from, copy, positions)));
    let to = upload.add(copies.iter().flat_map(|&copy| copied_slots(copy.to, copy, positions)));
    if copies.is_empty() {
        return None;
    }
    Some(Box::new(move |sent| Ok([sent.get(from)?, sent.get(to)?])))
}

/// Plans the places of tokens that are only on the device, and their indexes, if there are any.
fn chosen(sorted: &[SequenceChunk<'_>], upload: &mut Upload) -> Option<Later<[Tensor; 2]>> {
    let mut end = 0;
    let of = sorted.iter().filter_map(|chunk| {
        end += chunk.tokens.len() as i64;
        Some((end - 1, chunk.chosen? as i64))
    });
    let (places, indexes): (Vec<i64>, Vec<i64>) = of.unzip();
    if places.is_empty() {
        return None;
    }
    let (places, indexes) = (upload.add(places), upload.add(indexes));
    Some(Box::new(move |sent| Ok([sent.get(places)?, sent.get(indexes)?])))
}

/// Returns the requested rows in the order of the chunks, which the step computes in another `order`.
fn wanted(chunks: &[SequenceChunk<'_>], order: &[usize]) -> Vec<i64> {
    let mut first_rows = vec![0; chunks.len()];
    let mut next = 0;
    for &i in order {
        first_rows[i] = next;
        next += chunks[i].tokens.len();
    }
    let rows = |(chunk, first): (&SequenceChunk<'_>, usize)| chunk.logit_rows().map(move |row| (first + row) as i64);
    chunks.iter().zip(first_rows).flat_map(rows).collect()
}
