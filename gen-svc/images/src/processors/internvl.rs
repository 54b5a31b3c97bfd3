//! InternVL: the image is stretched to the grid of tiles with the nearest aspect ratio and cut. If
//! there is more than one tile, the original image, stretched to one tile, follows.
//!
//! The processor class of transformers switches the cutting on. `crop_to_patches` of the model's
//! files has no effect, only an override does.

use std::sync::Arc;

use crate::arrange::{write_planes, write_tiles};
use crate::error::{ImageError, ProcessorError};
use crate::image::{CHANNELS, RgbImage};
use crate::prepared::{Expansion, ImagePlan, Layout, PixelBatch, PreparedImage, concatenate};
use crate::recipe::Recipe;
use crate::resize::{Filter, resize};
use crate::settings::{CLIP, Defaults, Settings, check_area, refused};
use crate::values::ValueTable;

/// The most tiles of an image.
const MAX_TILES: usize = 256;

const DEFAULTS: Defaults = Defaults { resample: 3, normalize: true, normal: CLIP };

#[derive(Debug)]
struct InternVl {
    filter: Filter,
    values: Arc<ValueTable>,
    /// Height and width of a tile.
    tile: (usize, usize),
    /// Grids of (columns, rows), by area.
    grids: Vec<(usize, usize)>,
    tokens_per_tile: usize,
    begin_token: String,
    image_token: String,
    end_token: String,
}

pub(super) fn load(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let (filter, values) = settings.image.pixels(DEFAULTS)?;
    let (tile, grids) = (settings.image.size(384)?, load_grids(settings)?);
    let most = grids.iter().map(|&grid| tiles(grid)).max().unwrap_or(1);
    check_area("size", &[tile.0, tile.1, most])?;
    Ok(Box::new(InternVl {
        filter,
        values,
        tile,
        grids,
        tokens_per_tile: settings.processor.side("image_seq_length", 256)?,
        begin_token: settings.tokens.text("start_image_token", "<img>")?,
        image_token: settings.tokens.text("context_image_token", "<IMG_CONTEXT>")?,
        end_token: settings.tokens.text("end_image_token", "</img>")?,
    }))
}

fn load_grids(settings: &Settings) -> Result<Vec<(usize, usize)>, ProcessorError> {
    if !settings.overrides.flag("crop_to_patches", true)? {
        // Tiles are resized in any case, a whole image is not.
        if !settings.image.resizes()? {
            return Err(refused("do_resize", &false.into(), "true without crop_to_patches"));
        }
        return Ok(vec![(1, 1)]);
    }
    let (min, max) = (settings.image.side("min_patches", 1)?, settings.image.side("max_patches", 12)?);
    if max > MAX_TILES {
        return Err(refused("max_patches", &max.into(), "at most 256"));
    }
    Ok(grids(min, max))
}

/// Returns the grids with `min` to `max` tiles, by area, and then by columns.
fn grids(min: usize, max: usize) -> Vec<(usize, usize)> {
    let all = (1..=max).flat_map(|columns| (1..=max).map(move |rows| (columns, rows)));
    let mut grids: Vec<_> = all.filter(|(columns, rows)| (min..=max).contains(&(columns * rows))).collect();
    grids.sort_by_key(|(columns, rows)| columns * rows);
    grids
}

impl InternVl {
    /// Returns (columns, rows) of the grid with the nearest aspect ratio. Of equally near ones, a
    /// larger grid is used if the image has more than half of its pixels.
    fn grid(&self, width: usize, height: usize) -> (usize, usize) {
        let ratio = width as f64 / height as f64;
        let area = width as f64 * height as f64;
        let tile_area = (self.tile.0 * self.tile.1) as f64;
        let (mut best, mut nearest) = ((1, 1), f64::INFINITY);
        for &(columns, rows) in &self.grids {
            let distance = (ratio - columns as f64 / rows as f64).abs();
            let larger = distance == nearest && area > 0.5 * tile_area * (columns * rows) as f64;
            if distance < nearest || larger {
                (best, nearest) = ((columns, rows), distance);
            }
        }
        best
    }
}

/// Returns how many tiles a grid gives.
fn tiles((columns, rows): (usize, usize)) -> usize {
    if columns * rows == 1 { 1 } else { columns * rows + 1 }
}

impl Recipe for InternVl {
    fn placeholder(&self) -> &str {
        &self.image_token
    }

    fn image_token(&self) -> &str {
        &self.image_token
    }

    fn resizes(&self) -> bool {
        true
    }

    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        let grid = self.grid(width, height);
        let tokens = tiles(grid) * self.tokens_per_tile;
        let text = format!("{}{}{}", self.begin_token, self.image_token.repeat(tokens), self.end_token);
        let (columns, rows) = if tiles(grid) == 1 { (0, 0) } else { grid };
        Ok(ImagePlan {
            shape: vec![tiles(grid), CHANNELS, self.tile.0, self.tile.1],
            layout: Layout::Tiles { rows, columns },
            expansion: Expansion { text, tokens },
        })
    }

    fn values(&self) -> &Arc<ValueTable> {
        &self.values
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let (columns, rows) = self.grid(image.width(), image.height());
        let (height, width) = self.tile;
        let length = CHANNELS * height * width;
        let mut out = vec![0; tiles((columns, rows)) * length];
        let (cut, last) = out.split_at_mut((tiles((columns, rows)) - 1) * length);
        if !cut.is_empty() {
            let stretched = resize(image, columns * width, rows * height, self.filter);
            write_tiles(&stretched, self.tile, cut);
        }
        let whole = resize(image, width, height, self.filter);
        write_planes(&whole, whole.area(), last);
        Ok(out)
    }

    fn join(&self, images: &[&PreparedImage]) -> PixelBatch {
        concatenate(images, &[], &[CHANNELS, self.tile.0, self.tile.1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_ordered_by_area_and_columns() {
        assert_eq!(grids(1, 4), [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (2, 2), (4, 1)]);
        assert_eq!(grids(3, 3), [(1, 3), (3, 1)]);
    }
}
