//! Gemma 3: the image is stretched to a square. With pan and scan, crops along the long side
//! follow.
//!
//! The processor class of transformers passes its own settings of pan and scan. Those of the
//! model's files have no effect, only overrides do.

use std::sync::Arc;

use crate::arrange::write_planes;
use crate::error::{ImageError, ProcessorError};
use crate::image::{Area, CHANNELS, RgbImage, grid};
use crate::prepared::{Expansion, ImagePlan, Layout, PixelBatch, PreparedImage, concatenate};
use crate::recipe::Recipe;
use crate::resize::{Filter, resize};
use crate::settings::{Defaults, HALF, Section, Settings, check_area};
use crate::values::ValueTable;

const DEFAULTS: Defaults = Defaults { resample: 2, normalize: true, normal: HALF };

#[derive(Debug)]
struct Gemma3 {
    /// True if all images become squares.
    resizes: bool,
    filter: Filter,
    values: Arc<ValueTable>,
    height: usize,
    width: usize,
    pan_and_scan: Option<PanAndScan>,
    tokens_per_image: usize,
    begin_token: String,
    image_token: String,
    end_token: String,
}

/// When an image is cut, and into how many crops.
#[derive(Debug)]
struct PanAndScan {
    min_crop_size: usize,
    max_crops: usize,
    min_ratio: f64,
}

pub(super) fn load(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let (filter, values) = settings.image.pixels(DEFAULTS)?;
    let (height, width) = settings.image.size(224)?;
    let pan_and_scan = PanAndScan::load(&settings.overrides)?;
    let crops = pan_and_scan.as_ref().map_or(0, |settings| settings.max_crops);
    check_area("size", &[height, width, 1 + crops])?;
    Ok(Box::new(Gemma3 {
        // Pan and scan resizes in any case.
        resizes: settings.image.resizes()? || pan_and_scan.is_some(),
        filter,
        values,
        height,
        width,
        pan_and_scan,
        tokens_per_image: settings.processor.side("image_seq_length", 256)?,
        begin_token: settings.tokens.text("boi_token", "<start_of_image>")?,
        image_token: settings.tokens.text("image_token", "<image_soft_token>")?,
        end_token: settings.tokens.text("eoi_token", "<end_of_image>")?,
    }))
}

impl PanAndScan {
    fn load(overrides: &Section) -> Result<Option<Self>, ProcessorError> {
        let on = overrides.flag("do_pan_and_scan", false)?;
        Ok(on.then_some(Self {
            min_crop_size: overrides.side("pan_and_scan_min_crop_size", 256)?,
            max_crops: overrides.side("pan_and_scan_max_num_crops", 4)?,
            min_ratio: overrides.number("pan_and_scan_min_ratio_to_activate", 1.2)?,
        }))
    }

    /// Returns the crops. The last may reach over the edge.
    fn crops(&self, width: usize, height: usize) -> Vec<Area> {
        let (long, short) = (width.max(height), width.min(height));
        let ratio = long as f64 / short as f64;
        if ratio < self.min_ratio {
            return Vec::new();
        }
        let count = ((ratio + 0.5) as usize).min(long / self.min_crop_size).max(2).min(self.max_crops);
        let piece = long.div_ceil(count);
        if piece.min(short) < self.min_crop_size {
            return Vec::new();
        }
        let wide = width >= height;
        let areas = if wide { grid(1, count, (height, piece)) } else { grid(count, 1, (piece, width)) };
        areas.map(|area| area.inside(width, height)).filter(|area| area.width > 0 && area.height > 0).collect()
    }
}

impl Gemma3 {
    fn crops(&self, width: usize, height: usize) -> Vec<Area> {
        self.pan_and_scan.as_ref().map_or_else(Vec::new, |settings| settings.crops(width, height))
    }

    /// Returns (width, height) of the prepared image and of its crops.
    fn sides(&self, width: usize, height: usize) -> (usize, usize) {
        if self.resizes { (self.width, self.height) } else { (width, height) }
    }

    fn expansion(&self, crops: usize) -> Expansion {
        let Self { begin_token, end_token, .. } = self;
        let image = self.image_token.repeat(self.tokens_per_image);
        let whole = format!("\n\n{begin_token}{image}{end_token}\n\n");
        let tokens = (1 + crops) * self.tokens_per_image;
        if crops == 0 {
            return Expansion { text: whole, tokens };
        }
        let pieces = vec![whole.as_str(); crops].join(" ");
        let text =
            format!("Here is the original image {whole} and here are some crops to help you see better {pieces}");
        Expansion { text, tokens }
    }
}

impl Recipe for Gemma3 {
    fn placeholder(&self) -> &str {
        &self.begin_token
    }

    fn image_token(&self) -> &str {
        &self.image_token
    }

    fn resizes(&self) -> bool {
        self.resizes
    }

    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        let crops = self.crops(width, height).len();
        let (width, height) = self.sides(width, height);
        Ok(ImagePlan {
            shape: vec![1 + crops, CHANNELS, height, width],
            layout: Layout::Crops { crops },
            expansion: self.expansion(crops),
        })
    }

    fn values(&self) -> &Arc<ValueTable> {
        &self.values
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let crops = self.crops(image.width(), image.height());
        let (width, height) = self.sides(image.width(), image.height());
        let length = CHANNELS * height * width;
        let mut out = vec![0; (1 + crops.len()) * length];
        let write = |part: &RgbImage, out: &mut [u8]| {
            let resized = resize(part, width, height, self.filter);
            write_planes(&resized, resized.area(), out);
        };
        let (whole, rest) = out.split_at_mut(length);
        write(image, whole);
        for (&area, out) in crops.iter().zip(rest.chunks_exact_mut(length)) {
            write(&image.crop(area), out);
        }
        Ok(out)
    }

    fn join(&self, images: &[&PreparedImage]) -> PixelBatch {
        concatenate(images, &[], &images[0].plan.shape[1..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: PanAndScan = PanAndScan { min_crop_size: 24, max_crops: 4, min_ratio: 1.2 };

    #[test]
    fn the_long_side_is_cut_and_the_last_crop_may_be_shorter() {
        let crops = SETTINGS.crops(100, 30);
        let columns: Vec<_> = crops.iter().map(|area| (area.left, area.width)).collect();
        assert_eq!(columns, [(0, 34), (34, 34), (68, 32)]);
        assert_eq!(SETTINGS.crops(30, 100).len(), 3);
    }

    #[test]
    fn square_and_small_images_are_not_cut() {
        assert!(SETTINGS.crops(100, 100).is_empty());
        assert!(SETTINGS.crops(40, 10).is_empty());
    }
}
