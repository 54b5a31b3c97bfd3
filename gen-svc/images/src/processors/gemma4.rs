//! Gemma 4: the image is resized, with about its aspect ratio, to as many patches as the limit of
//! soft tokens allows. A soft token is a square of pooled patches.

use std::sync::Arc;

use crate::arrange::write_pixels;
use crate::error::{ImageError, ProcessorError};
use crate::image::{CHANNELS, RgbImage, grid};
use crate::parallel::in_parts;
use crate::prepared::{Expansion, ImagePlan, Layout, PixelBatch, PreparedImage};
use crate::recipe::{Recipe, whole_cells};
use crate::resize::{Filter, resize};
use crate::settings::{Defaults, Settings, check_area, refused};
use crate::values::{Normal, ValueTable};

/// The numbers of soft tokens that transformers allows.
const SOFT_TOKENS: &[usize] = &[70, 140, 280, 560, 1120];

const DEFAULTS: Defaults =
    Defaults { resample: 3, normalize: false, normal: Normal { mean: [0.0; CHANNELS], std: [1.0; CHANNELS] } };

#[derive(Debug)]
struct Gemma4 {
    resizes: bool,
    filter: Filter,
    values: Arc<ValueTable>,
    patch: usize,
    pool: usize,
    max_soft_tokens: usize,
    begin_token: String,
    image_token: String,
    end_token: String,
}

pub(super) fn load(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let (filter, values) = settings.image.pixels(DEFAULTS)?;
    // The class passes the number to torchvision, for which 0 is this filter.
    let filter = if filter == Filter::Nearest { Filter::NearestCorner } else { filter };
    let (patch, pool) = (settings.image.side("patch_size", 16)?, settings.image.side("pooling_kernel_size", 3)?);
    let max_soft_tokens = settings.image.side("max_soft_tokens", 280)?;
    if !SOFT_TOKENS.contains(&max_soft_tokens) {
        return Err(refused("max_soft_tokens", &max_soft_tokens.into(), "70, 140, 280, 560 or 1120"));
    }
    check_area("patch_size", &[patch, patch, pool, pool, max_soft_tokens])?;
    Ok(Box::new(Gemma4 {
        resizes: settings.image.resizes()?,
        filter,
        values,
        patch,
        pool,
        max_soft_tokens,
        begin_token: settings.tokens.text("boi_token", "<|image>")?,
        image_token: settings.tokens.text("image_token", "<|image|>")?,
        end_token: settings.tokens.text("eoi_token", "<image|>")?,
    }))
}

impl Gemma4 {
    fn max_patches(&self) -> usize {
        self.max_soft_tokens * self.pool * self.pool
    }

    /// Returns (width, height) of the resized image, multiples of a soft token's side.
    fn sides(&self, width: usize, height: usize) -> Result<(usize, usize), ImageError> {
        let side = self.patch * self.pool;
        if !self.resizes {
            return whole_cells(width, height, side);
        }
        let target = (self.max_patches() * self.patch * self.patch) as f64;
        let factor = (target / (width as f64 * height as f64)).sqrt();
        let cells = |length: usize| (factor * length as f64 / side as f64).floor() as usize;
        let (columns, rows) = match (cells(width), cells(height)) {
            (0, 0) => return Err(too_thin(width, height)),
            (columns, 0) => ((width / height).min(self.max_soft_tokens), 1.min(columns)),
            (0, rows) => (1.min(rows), (height / width).min(self.max_soft_tokens)),
            cells => cells,
        };
        if columns * rows > self.max_soft_tokens {
            return Err(too_thin(width, height));
        }
        Ok((columns * side, rows * side))
    }
}

fn too_thin(width: usize, height: usize) -> ImageError {
    ImageError::AspectRatio { width, height, reason: "it does not fit into the limit of soft tokens" }
}

impl Recipe for Gemma4 {
    fn placeholder(&self) -> &str {
        &self.image_token
    }

    fn image_token(&self) -> &str {
        &self.image_token
    }

    fn resizes(&self) -> bool {
        self.resizes
    }

    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        let (width, height) = self.sides(width, height)?;
        let (rows, columns) = (height / self.patch, width / self.patch);
        let tokens = rows * columns / (self.pool * self.pool);
        let text = format!("{}{}{}", self.begin_token, self.image_token.repeat(tokens), self.end_token);
        Ok(ImagePlan {
            shape: vec![rows * columns, self.patch * self.patch * CHANNELS],
            layout: Layout::Patches { rows, columns },
            expansion: Expansion { text, tokens },
        })
    }

    fn values(&self) -> &Arc<ValueTable> {
        &self.values
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let (width, height) = self.sides(image.width(), image.height())?;
        let resized = resize(image, width, height, self.filter);
        let mut out = vec![0; width * height * CHANNELS];
        let length = self.patch * self.patch * CHANNELS;
        in_parts(&mut out, length, |first, patches| {
            let areas = grid(height / self.patch, width / self.patch, (self.patch, self.patch)).skip(first);
            for (area, patch) in areas.zip(patches.chunks_exact_mut(length)) {
                write_pixels(&resized, area, patch);
            }
        });
        Ok(out)
    }

    /// Pads each image with zeros to the limit of patches, or to the most if images are not resized.
    fn join(&self, images: &[&PreparedImage]) -> PixelBatch {
        let most = images.iter().map(|image| image.plan.shape[0]).max().unwrap_or(0);
        let (patches, length) = (self.max_patches().max(most), self.patch * self.patch * CHANNELS);
        let mut pixels = Vec::with_capacity(images.len() * patches * length);
        let mut positions = Vec::with_capacity(images.len() * patches);
        for (index, image) in images.iter().enumerate() {
            pixels.extend(image.pixels());
            pixels.resize((index + 1) * patches * length, 0.0);
            positions.extend(patch_positions(&image.plan.layout));
            positions.resize((index + 1) * patches, [-1, -1]);
        }
        PixelBatch { shape: vec![images.len(), patches, length], pixels, positions }
    }
}

fn patch_positions(layout: &Layout) -> impl Iterator<Item = [i64; 2]> {
    let &(rows, columns) = match layout {
        Layout::Patches { rows, columns } => &(*rows as i64, *columns as i64),
        _ => &(0, 0),
    };
    (0..rows).flat_map(move |row| (0..columns).map(move |column| [column, row]))
}
