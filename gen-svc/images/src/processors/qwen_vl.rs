//! Qwen2-VL, Qwen2.5-VL and Qwen3-VL: both sides become multiples of a merged block, with the area
//! between two limits. Patches are ordered by merged block.

use std::sync::Arc;

use crate::arrange::write_patch;
use crate::error::{ImageError, ProcessorError};
use crate::image::{Area, CHANNELS, RgbImage, grid};
use crate::parallel::in_parts;
use crate::prepared::{Expansion, ImagePlan, Layout, PixelBatch, PreparedImage, concatenate};
use crate::recipe::{Recipe, whole_cells};
use crate::resize::{Filter, resize};
use crate::settings::{CLIP, Defaults, Section, Settings, check_area, refused};
use crate::values::ValueTable;

/// The most equal copies of a patch.
const MAX_TIMES: usize = 4;

/// The largest ratio of the sides.
const MAX_RATIO: usize = 200;

const DEFAULTS: Defaults = Defaults { resample: 3, normalize: true, normal: CLIP };

#[derive(Debug)]
struct QwenVl {
    resizes: bool,
    filter: Filter,
    values: Arc<ValueTable>,
    patch: usize,
    merge: usize,
    times: usize,
    min_area: usize,
    max_area: usize,
    image_token: String,
}

pub(super) fn load(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let (filter, values) = settings.image.pixels(DEFAULTS)?;
    let (patch, merge) = (settings.image.side("patch_size", 14)?, settings.image.side("merge_size", 2)?);
    let (min_area, max_area) = areas(&settings.image)?;
    let times = settings.image.side("temporal_patch_size", 2)?;
    if times > MAX_TIMES {
        return Err(refused("temporal_patch_size", &times.into(), "at most 4"));
    }
    // A side may be as long as a block is, though the area is smaller.
    check_area("patch_size", &[patch, merge, patch, merge, MAX_RATIO])?;
    Ok(Box::new(QwenVl {
        resizes: settings.image.resizes()?,
        filter,
        values,
        patch,
        merge,
        times,
        min_area,
        max_area,
        image_token: settings.tokens.text("image_token", "<|image_pad|>")?,
    }))
}

/// Returns the limits of the area. `size` contains areas, though its keys name edges.
fn areas(image: &Section) -> Result<(usize, usize), ProcessorError> {
    let size = image.object("size")?;
    let edge = |name: &'static str, key: &'static str, default: usize| match (image.area(name)?, &size) {
        (Some(area), _) => Ok(area),
        (None, None) => Ok(default),
        (None, Some(size)) => {
            size.area(key)?.ok_or_else(|| refused("size", &size.0.clone().into(), "shortest_edge and longest_edge"))
        }
    };
    Ok((edge("min_pixels", "shortest_edge", 56 * 56)?, edge("max_pixels", "longest_edge", 28 * 28 * 1280)?))
}

impl QwenVl {
    /// Returns (width, height) of the resized image.
    fn sides(&self, width: usize, height: usize) -> Result<(usize, usize), ImageError> {
        if !self.resizes {
            return whole_cells(width, height, self.patch * self.merge);
        }
        if width.max(height) > width.min(height) * MAX_RATIO {
            return Err(ImageError::AspectRatio { width, height, reason: "the sides' ratio is above 200" });
        }
        let factor = (self.patch * self.merge) as f64;
        let (exact_width, exact_height) = (width as f64, height as f64);
        let area = exact_width * exact_height;
        let round = |side: f64| (side / factor).round_ties_even() * factor;
        let rounded = round(exact_width) * round(exact_height);
        let (width, height) = if rounded > self.max_area as f64 {
            let beta = (area / self.max_area as f64).sqrt();
            let down = |side: f64| ((side / beta / factor).floor() * factor).max(factor);
            (down(exact_width), down(exact_height))
        } else if rounded < self.min_area as f64 {
            let beta = (self.min_area as f64 / area).sqrt();
            let up = |side: f64| (side * beta / factor).ceil() * factor;
            (up(exact_width), up(exact_height))
        } else {
            (round(exact_width), round(exact_height))
        };
        Ok((width as usize, height as usize))
    }

    /// Returns the patches of a merged block, row by row.
    fn patches(&self, block: Area) -> impl Iterator<Item = Area> {
        let moved = move |area: Area| Area { left: area.left + block.left, top: area.top + block.top, ..area };
        grid(self.merge, self.merge, (self.patch, self.patch)).map(moved)
    }
}

impl Recipe for QwenVl {
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
        let tokens = rows * columns / (self.merge * self.merge);
        Ok(ImagePlan {
            shape: vec![rows * columns, CHANNELS * self.times * self.patch * self.patch],
            layout: Layout::Grid { time: 1, rows, columns },
            expansion: Expansion { text: self.image_token.repeat(tokens), tokens },
        })
    }

    fn values(&self) -> &Arc<ValueTable> {
        &self.values
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let (width, height) = self.sides(image.width(), image.height())?;
        let resized = resize(image, width, height, self.filter);
        let block = self.patch * self.merge;
        let mut out = vec![0; width * height * CHANNELS * self.times];
        let length = self.patch * self.patch * CHANNELS * self.times;
        in_parts(&mut out, self.merge * self.merge * length, |first, out| {
            let blocks = grid(height / block, width / block, (block, block)).skip(first);
            let areas = blocks.flat_map(|block| self.patches(block));
            for (area, patch) in areas.zip(out.chunks_exact_mut(length)) {
                write_patch(&resized, area, self.times, patch);
            }
        });
        Ok(out)
    }

    fn join(&self, images: &[&PreparedImage]) -> PixelBatch {
        concatenate(images, &[], &[CHANNELS * self.times * self.patch * self.patch])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas_of(text: &str) -> Result<(usize, usize), ProcessorError> {
        areas(&Section(serde_json::from_str(text).expect("an object")))
    }

    #[test]
    fn pixels_replace_the_edges_of_size() {
        assert_eq!(areas_of("{}").expect("defaults"), (3136, 1_003_520));
        let both = r#"{"size": {"shortest_edge": 1, "longest_edge": 2}, "max_pixels": 9}"#;
        assert_eq!(areas_of(both).expect("both"), (1, 9));
        assert!(areas_of(r#"{"size": {"height": 5, "width": 5}}"#).is_err());
    }
}
