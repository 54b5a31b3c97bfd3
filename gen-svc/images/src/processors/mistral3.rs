//! Mistral 3 and Pixtral: the image is reduced to the longest edge, and both sides become multiples
//! of a merged patch. The `patch_size` of the image processor's own settings has no effect: the
//! processor passes its `patch_size * spatial_merge_size`.

use std::sync::Arc;

use crate::arrange::write_planes;
use crate::error::{ImageError, ProcessorError};
use crate::image::{CHANNELS, RgbImage};
use crate::prepared::{Expansion, ImagePlan, Layout, PixelBatch, PreparedImage};
use crate::recipe::Recipe;
use crate::resize::{Filter, resize};
use crate::settings::{CLIP, Defaults, Settings, check_area, refused};
use crate::values::ValueTable;

const DEFAULTS: Defaults = Defaults { resample: 3, normalize: true, normal: CLIP };

#[derive(Debug)]
struct Mistral3 {
    resizes: bool,
    filter: Filter,
    values: Arc<ValueTable>,
    /// (width, height) that the image must not exceed.
    limit: (usize, usize),
    cell: usize,
    image_token: String,
    break_token: String,
    end_token: String,
}

pub(super) fn load(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let (filter, values) = settings.image.pixels(DEFAULTS)?;
    if settings.image.flag("do_center_crop", false)? {
        return Err(refused("do_center_crop", &true.into(), "false"));
    }
    let processor = &settings.processor;
    let (patch, merge) = (processor.side("patch_size", 16)?, processor.side("spatial_merge_size", 1)?);
    let (limit, cell) = (limit(settings)?, patch * merge);
    check_area("size", &[limit.0.next_multiple_of(cell), limit.1.next_multiple_of(cell)])?;
    Ok(Box::new(Mistral3 {
        resizes: settings.image.resizes()?,
        filter,
        values,
        limit,
        cell,
        image_token: processor.text("image_token", "[IMG]")?,
        break_token: processor.text("image_break_token", "[IMG_BREAK]")?,
        end_token: processor.text("image_end_token", "[IMG_END]")?,
    }))
}

/// Returns (width, height) of `size`, which is an edge or both sides.
fn limit(settings: &Settings) -> Result<(usize, usize), ProcessorError> {
    let has_edge = settings.image.get("size").is_none_or(|size| size.get("longest_edge").is_some());
    if has_edge {
        let edge = settings.image.side_of("size", "longest_edge", 1024)?;
        return Ok((edge, edge));
    }
    let (height, width) = settings.image.size(1024)?;
    Ok((width, height))
}

impl Mistral3 {
    /// Returns (width, height) of the resized image.
    fn sides(&self, width: usize, height: usize) -> Result<(usize, usize), ImageError> {
        if !self.resizes {
            return self.unchanged(width, height);
        }
        let ratio = (height as f64 / self.limit.1 as f64).max(width as f64 / self.limit.0 as f64);
        let reduced = |side: usize| if ratio > 1.0 { (side as f64 / ratio).floor() as usize } else { side };
        let sides = (reduced(width).next_multiple_of(self.cell), reduced(height).next_multiple_of(self.cell));
        if sides.0 == 0 || sides.1 == 0 {
            return Err(ImageError::AspectRatio { width, height, reason: "a reduced side has no pixel" });
        }
        Ok(sides)
    }

    /// Returns the sides of an image that is not resized. A rest that is smaller than a cell has no token.
    fn unchanged(&self, width: usize, height: usize) -> Result<(usize, usize), ImageError> {
        if width.min(height) >= self.cell {
            return Ok((width, height));
        }
        let problem = format!("it is not resized (do_resize), and each side needs {} pixels", self.cell);
        Err(ImageError::Unfit { width, height, problem })
    }

    fn expansion(&self, rows: usize, columns: usize) -> Expansion {
        let row = self.image_token.repeat(columns);
        let text = vec![row; rows].join(&self.break_token) + &self.end_token;
        Expansion { text, tokens: rows * columns }
    }
}

impl Recipe for Mistral3 {
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
        Ok(ImagePlan {
            shape: vec![CHANNELS, height, width],
            layout: Layout::Whole { height, width },
            expansion: self.expansion(height / self.cell, width / self.cell),
        })
    }

    fn values(&self) -> &Arc<ValueTable> {
        &self.values
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let (width, height) = self.sides(image.width(), image.height())?;
        let resized = resize(image, width, height, self.filter);
        let mut out = vec![0; width * height * CHANNELS];
        write_planes(&resized, resized.area(), &mut out);
        Ok(out)
    }

    /// Pads each image with zeros, right and bottom, to the largest sides of the request.
    fn join(&self, images: &[&PreparedImage]) -> PixelBatch {
        let largest = |axis: usize| images.iter().map(|image| image.plan.shape[axis]).max().unwrap_or(0);
        let (height, width) = (largest(1), largest(2));
        let mut pixels = Vec::with_capacity(images.len() * CHANNELS * height * width);
        for (index, image) in images.iter().enumerate() {
            let (rows, columns) = (image.plan.shape[1], image.plan.shape[2]);
            for (channel, plane) in image.pixels().chunks_exact(rows * columns).enumerate() {
                for row in plane.chunks_exact(columns) {
                    pixels.extend_from_slice(row);
                    pixels.resize(pixels.len() + width - columns, 0.0);
                }
                pixels.resize((index * CHANNELS + channel + 1) * height * width, 0.0);
            }
        }
        PixelBatch { shape: vec![images.len(), CHANNELS, height, width], pixels, positions: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Mistral3 {
        let text = str::to_owned;
        Mistral3 {
            resizes: true,
            filter: Filter::Bicubic,
            values: Arc::new(ValueTable::new(1.0, None)),
            limit: (280, 280),
            cell: 28,
            image_token: text("i"),
            break_token: text("b"),
            end_token: text("e"),
        }
    }

    #[test]
    fn rows_are_separated_and_ended() {
        assert_eq!(recipe().expansion(2, 3).text, "iiibiiie");
    }

    #[test]
    fn sides_are_reduced_and_then_enlarged_to_whole_cells() {
        assert_eq!(recipe().sides(560, 100), Ok((280, 56)));
        assert_eq!(recipe().sides(1, 1), Ok((28, 28)));
        assert!(matches!(recipe().sides(100_000, 1), Err(ImageError::AspectRatio { .. })));
    }

    #[test]
    fn joined_images_are_padded_right_and_bottom() {
        let image = |height: usize, width: usize, value: u8| PreparedImage {
            plan: ImagePlan {
                shape: vec![CHANNELS, height, width],
                layout: Layout::Whole { height, width },
                expansion: Expansion { text: String::new(), tokens: 0 },
            },
            bytes: vec![value; CHANNELS * height * width],
            values: Arc::new(ValueTable::new(1.0, None)),
        };
        let batch = recipe().join(&[&image(1, 2, 1), &image(2, 1, 2)]);
        assert_eq!(batch.shape, [2, CHANNELS, 2, 2]);
        assert_eq!(batch.pixels[..4], [1.0, 1.0, 0.0, 0.0]);
        assert_eq!(batch.pixels[12..16], [2.0, 0.0, 2.0, 0.0]);
    }
}
