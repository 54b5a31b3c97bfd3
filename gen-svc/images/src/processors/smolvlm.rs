//! SmolVLM and Idefics3: the image is enlarged or reduced to the longest edge, stretched to
//! multiples of a tile, and cut. The stretched image, reduced to one tile, follows.

use std::sync::Arc;

use crate::arrange::{write_planes, write_tiles};
use crate::error::{ImageError, ProcessorError};
use crate::image::{CHANNELS, RgbImage};
use crate::prepared::{Expansion, ImagePlan, Layout, PixelBatch, PreparedImage, concatenate};
use crate::recipe::Recipe;
use crate::resize::{Filter, resize};
use crate::settings::{Defaults, HALF, Settings, refused};
use crate::values::ValueTable;

/// The longest edge that transformers allows.
const MAX_EDGE: usize = 4096;

/// The smallest tile. Smaller ones would be too many.
const MIN_TILE: usize = 32;

const DEFAULTS: Defaults = Defaults { resample: 1, normalize: true, normal: HALF };

#[derive(Debug)]
struct SmolVlm {
    /// False: the first resize is left out.
    resizes: bool,
    filter: Filter,
    values: Arc<ValueTable>,
    longest_edge: usize,
    tile: usize,
    splitting: bool,
    tokens_per_tile: usize,
    fake_token: String,
    global_token: String,
    image_token: String,
}

/// Where an image goes.
struct Geometry {
    /// (width, height) of the first resize.
    fitted: (usize, usize),
    /// (width, height) of the second resize, multiples of a tile.
    stretched: (usize, usize),
    rows: usize,
    columns: usize,
}

pub(super) fn load(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let (filter, values) = settings.image.pixels(DEFAULTS)?;
    let tile = settings.image.side_of("max_image_size", "longest_edge", 364)?;
    if !(MIN_TILE..=MAX_EDGE).contains(&tile) {
        return Err(refused("max_image_size", &tile.into(), "an edge from 32 to 4096"));
    }
    Ok(Box::new(SmolVlm {
        resizes: settings.image.resizes()?,
        filter,
        values,
        longest_edge: settings.image.side_of("size", "longest_edge", 4 * 364)?,
        tile,
        splitting: settings.image.flag("do_image_splitting", true)?,
        tokens_per_tile: settings.processor.side("image_seq_len", 169)?,
        fake_token: settings.tokens.text("fake_image_token", "<fake_token_around_image>")?,
        global_token: settings.tokens.text("global_image_token", "<global-img>")?,
        image_token: settings.tokens.text("image_token", "<image>")?,
    }))
}

impl SmolVlm {
    fn geometry(&self, width: usize, height: usize) -> Geometry {
        let fitted = if self.resizes { limited(fitted(width, height, self.longest_edge)) } else { (width, height) };
        if !self.splitting {
            return Geometry { fitted, stretched: (self.tile, self.tile), rows: 0, columns: 0 };
        }
        let stretched = stretched(fitted, self.tile);
        let (columns, rows) = (stretched.0 / self.tile, stretched.1 / self.tile);
        let (rows, columns) = if (rows, columns) == (1, 1) { (0, 0) } else { (rows, columns) };
        Geometry { fitted, stretched, rows, columns }
    }

    fn expansion(&self, rows: usize, columns: usize) -> Expansion {
        let Self { fake_token, global_token, .. } = self;
        let image = self.image_token.repeat(self.tokens_per_tile);
        let mut text = String::new();
        for row in 1..=rows {
            for column in 1..=columns {
                text += &format!("{fake_token}<row_{row}_col_{column}>{image}");
            }
            text.push('\n');
        }
        if rows > 0 {
            text.push('\n');
        }
        text += &format!("{fake_token}{global_token}{image}{fake_token}");
        Expansion { text, tokens: (rows * columns + 1) * self.tokens_per_tile }
    }
}

/// Returns the sides with the longest edge. The other is even, or 1.
fn fitted(width: usize, height: usize, longest: usize) -> (usize, usize) {
    let even = |side: f64| (side as usize).next_multiple_of(2).max(1);
    let aspect = width as f64 / height as f64;
    if width >= height { (longest, even(longest as f64 / aspect)) } else { (even(longest as f64 * aspect), longest) }
}

fn limited((width, height): (usize, usize)) -> (usize, usize) {
    let aspect = width as f64 / height as f64;
    match (width, height) {
        (width, height) if width.max(height) <= MAX_EDGE => (width, height),
        (width, height) if width >= height => (MAX_EDGE, ((MAX_EDGE as f64 / aspect) as usize).max(1)),
        _ => (((MAX_EDGE as f64 * aspect) as usize).max(1), MAX_EDGE),
    }
}

fn stretched((width, height): (usize, usize), tile: usize) -> (usize, usize) {
    let up = |side: usize| side.next_multiple_of(tile).max(tile);
    let aspect = width as f64 / height as f64;
    if width >= height {
        let width = up(width);
        (width, up((width as f64 / aspect) as usize))
    } else {
        let height = up(height);
        (up((height as f64 * aspect) as usize), height)
    }
}

impl Recipe for SmolVlm {
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
        let Geometry { rows, columns, .. } = self.geometry(width, height);
        Ok(ImagePlan {
            shape: vec![rows * columns + 1, CHANNELS, self.tile, self.tile],
            layout: Layout::Tiles { rows, columns },
            expansion: self.expansion(rows, columns),
        })
    }

    fn values(&self) -> &Arc<ValueTable> {
        &self.values
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let Geometry { fitted, stretched, rows, columns } = self.geometry(image.width(), image.height());
        let first = resize(image, fitted.0, fitted.1, self.filter);
        let canvas = resize(&first, stretched.0, stretched.1, self.filter);
        let length = CHANNELS * self.tile * self.tile;
        let mut out = vec![0; (rows * columns + 1) * length];
        let (tiles, last) = out.split_at_mut(rows * columns * length);
        write_tiles(&canvas, (self.tile, self.tile), tiles);
        let whole = resize(&canvas, self.tile, self.tile, self.filter);
        write_planes(&whole, whole.area(), last);
        Ok(out)
    }

    fn join(&self, images: &[&PreparedImage]) -> PixelBatch {
        concatenate(images, &[1], &[CHANNELS, self.tile, self.tile])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_image_is_enlarged() {
        assert_eq!(fitted(1, 1, 256), (256, 256));
        assert_eq!(fitted(1000, 40, 256), (256, 10));
        assert_eq!(fitted(7, 7000, 256), (1, 256));
    }

    #[test]
    fn both_sides_become_multiples_of_a_tile() {
        assert_eq!(stretched((256, 10), 64), (256, 64));
        assert_eq!(stretched((100, 130), 64), (192, 192));
    }

    #[test]
    fn a_long_edge_is_limited() {
        assert_eq!(limited((8192, 100)), (4096, 50));
        assert_eq!(limited((1, 8192)), (1, 4096));
    }
}
