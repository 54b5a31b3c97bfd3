//! The inputs of a step, which travel to each device in one upload.
//!
//! Shapes: T tokens of a step, R requested rows, E hidden size.

use std::ops::Range;

use tandem_core::cache::BlockCopy;
use tandem_core::models::decoder::Decoder;
use tandem_core::models::images::images;
use tandem_core::models::{ImageRows, SequenceChunk};
use tch::{Kind, Tensor};

use super::methods::Methods;
use super::paged::copied_slots;
use super::rows::ProductRows;
use super::runs::{self, Runs};
use crate::device::upload::{Later, Part, Sent, Upload};
use crate::error::Error;

/// The chunks of a step.
pub(super) struct Batch<'a> {
    chunks: &'a [SequenceChunk<'a>],
    /// The indexes of the chunks in the [order](runs::order) of computation.
    order: Vec<usize>,
    /// The chunks in that order.
    sorted: Vec<SequenceChunk<'a>>,
    /// The rows of products.
    rows: ProductRows,
    /// The rows after those of the T tokens.
    padding: usize,
}

/// The inputs before the first layer, on the first device.
#[derive(Debug)]
pub(super) struct StartInputs {
    /// `[T]`
    pub(super) ids: Tensor,
    /// `[T]`, for the inputs of single layers: images have the model's own token for them. `None`: there
    /// are no images.
    layer_ids: Option<Tensor>,
    pub(super) images: Vec<ImageInputs>,
    /// Indexes among the T tokens, and the indexes of their ids among the choices of the last step.
    chosen: Option<[Tensor; 2]>,
}

/// The inputs of the layers of a device.
#[derive(Debug)]
pub(super) struct PartInputs {
    pub(super) runs: Runs,
    pub(super) deep: Vec<DeepInputs>,
    /// Slots that are copied before the step: from, to.
    pub(super) copies: Option<[Tensor; 2]>,
}

/// The features of adjacent image tokens.
#[derive(Debug)]
pub(super) struct ImageInputs {
    /// The first row among all tokens.
    first: i64,
    /// `[n, E]`
    rows: Tensor,
}

/// The features of adjacent image tokens that are added after layers.
#[derive(Debug)]
pub(super) struct DeepInputs {
    /// The first row among all tokens.
    first: i64,
    /// `[n, E]` for each of the first layers of a device.
    deep: Vec<Tensor>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(chunks: &'a [SequenceChunk<'a>], rows: ProductRows) -> Self {
        let order = runs::order(chunks);
        let sorted = order.iter().map(|&i| chunks[i]).collect();
        let tokens: usize = chunks.iter().map(|chunk| chunk.tokens.len()).sum();
        Self { chunks, order, sorted, rows, padding: rows.padded(tokens) - tokens }
    }

    /// Returns the requested rows in the order of the chunks, which the step computes in another one, then
    /// padding.
    pub(super) fn wanted(&self) -> Vec<i64> {
        let mut first_rows = vec![0; self.chunks.len()];
        let mut next = 0;
        for &i in &self.order {
            first_rows[i] = next;
            next += self.chunks[i].tokens.len();
        }
        let rows =
            |(chunk, first): (&SequenceChunk<'_>, usize)| chunk.logit_rows().map(move |row| (first + row) as i64);
        let mut wanted: Vec<i64> = self.chunks.iter().zip(first_rows).flat_map(rows).collect();
        wanted.resize(self.rows.padded(wanted.len()), 0);
        wanted
    }
}

impl StartInputs {
    /// Adds the inputs to the upload of the first device.
    pub(super) fn plan(batch: &Batch<'_>, (description, dtype): (&Decoder, Kind), upload: &mut Upload) -> Later<Self> {
        let sorted = &batch.sorted;
        let mut ids: Vec<i64> = sorted.iter().flat_map(|chunk| chunk.tokens).map(|&id| i64::from(id)).collect();
        ids.resize(ids.len() + batch.padding, 0);
        let layer_ids = layer_ids(sorted, &ids, description).map(|ids| upload.add(ids));
        let ids = upload.add(ids);
        let rows = (description.hidden as i64, dtype);
        let images: Vec<_> =
            images(sorted).map(|(first, image)| ImageInputs::plan(first, image, rows, upload)).collect();
        let chosen = chosen(sorted, upload);
        Box::new(move |sent| {
            Ok(Self {
                ids: sent.get(ids)?,
                layer_ids: layer_ids.map(|ids| sent.get(ids)).transpose()?,
                images: images.into_iter().map(|image| image(sent)).collect::<Result<_, _>>()?,
                chosen: chosen.map(|chosen| chosen(sent)).transpose()?,
            })
        })
    }

    /// Returns true if tokens of the step before must be inserted.
    pub(super) fn needs_tokens(&self) -> bool {
        self.chosen.is_some()
    }

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

impl PartInputs {
    /// Adds the inputs of these layers to the upload of their device. Rows of images have `width` numbers.
    pub(super) fn plan(
        batch: &Batch<'_>,
        (layers, width, dtype): (&Range<usize>, usize, Kind),
        methods: &Methods,
        upload: &mut Upload,
    ) -> Later<Self> {
        let rows = (width as i64, dtype);
        let deep: Vec<_> = images(&batch.sorted)
            .map(|(first, image)| DeepInputs::plan(first, (image, layers), rows, upload))
            .collect();
        let runs = Runs::plan(&batch.sorted, batch.padding, methods, upload);
        let copies = copies(batch.chunks, methods.block(), upload);
        Box::new(move |sent| {
            Ok(Self {
                runs: runs(sent)?,
                deep: deep.into_iter().map(|image| image(sent)).collect::<Result<_, _>>()?,
                copies: copies.map(|copies| copies(sent)).transpose()?,
            })
        })
    }
}

impl ImageInputs {
    fn plan(first: usize, image: &ImageRows<'_>, rows: (i64, Kind), upload: &mut Upload) -> Later<Self> {
        let first = (first + image.start) as i64;
        let part = upload.add(image.rows.iter().copied());
        Box::new(move |sent| Ok(Self { first, rows: features(sent, part, rows)? }))
    }

    /// Replaces the rows of the image in `x`, `[T, E]`.
    pub(super) fn place(&self, x: &Tensor) -> Result<(), Error> {
        Ok(x.f_narrow(0, self.first, self.rows.size()[0])?.f_copy_(&self.rows)?)
    }
}

impl DeepInputs {
    fn plan(
        first: usize,
        (image, layers): (&ImageRows<'_>, &Range<usize>),
        rows: (i64, Kind),
        upload: &mut Upload,
    ) -> Later<Self> {
        let first = (first + image.start) as i64;
        let own = image.deep.iter().skip(layers.start).take(layers.len());
        let parts: Vec<Part> = own.map(|deep| upload.add(deep.iter().copied())).collect();
        Box::new(move |sent| {
            let deep = parts.into_iter().map(|part| features(sent, part, rows)).collect::<Result<_, _>>()?;
            Ok(Self { first, deep })
        })
    }

    /// Adds the deep features for layer `layer` of the device to the rows of the image in `x`, `[T, E]`.
    pub(super) fn deepen(&self, x: &Tensor, layer: usize) -> Result<(), Error> {
        let Some(deep) = self.deep.get(layer) else { return Ok(()) };
        drop(x.f_narrow(0, self.first, deep.size()[0])?.f_add_(deep)?);
        Ok(())
    }
}

/// Returns the features of an image's tokens, `[n, E]`.
fn features(sent: &Sent, part: Part, (width, dtype): (i64, Kind)) -> Result<Tensor, Error> {
    Ok(sent.get(part)?.f_view([-1, width])?.f_to_kind(dtype)?)
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
