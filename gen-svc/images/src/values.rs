//! Pixel values of bytes: scaling and normalization.

use crate::image::{Area, CHANNELS, RgbImage};

/// Mean and standard deviation of each channel, for values from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Normal {
    pub(crate) mean: [f64; CHANNELS],
    pub(crate) std: [f64; CHANNELS],
}

/// The value of each byte, per channel.
#[derive(Clone)]
pub(crate) struct ValueTable {
    values: [[f32; 256]; CHANNELS],
    factor: f64,
    normal: Option<Normal>,
}

impl ValueTable {
    /// Returns the values of `byte * factor`, then normalized if `normal` is given.
    pub(crate) fn new(factor: f64, normal: Option<Normal>) -> Self {
        let values = normal.map_or_else(|| scaled(factor), |normal| normalized(factor, normal));
        Self { values, factor, normal }
    }

    /// Appends the values of `area` by channel, row and column.
    pub(crate) fn push_planes(&self, image: &RgbImage, area: Area, out: &mut Vec<f32>) {
        for (channel, table) in self.values.iter().enumerate() {
            for row in area_rows(image, area) {
                out.extend(row[channel..].iter().step_by(CHANNELS).map(|&byte| table[usize::from(byte)]));
            }
        }
    }

    /// Appends the values of `area` by row, column and channel.
    pub(crate) fn push_pixels(&self, image: &RgbImage, area: Area, out: &mut Vec<f32>) {
        let value = |(channel, &byte): (usize, &u8)| self.values[channel][usize::from(byte)];
        for row in area_rows(image, area) {
            out.extend(row.chunks_exact(CHANNELS).flat_map(|pixel| pixel.iter().enumerate().map(value)));
        }
    }

    /// Appends the values of a patch by channel, time, row and column. All times are equal.
    pub(crate) fn push_patch(&self, image: &RgbImage, area: Area, times: usize, out: &mut Vec<f32>) {
        for (channel, table) in self.values.iter().enumerate() {
            let start = out.len();
            for row in area_rows(image, area) {
                out.extend(row[channel..].iter().step_by(CHANNELS).map(|&byte| table[usize::from(byte)]));
            }
            let end = out.len();
            (1..times).for_each(|_| out.extend_from_within(start..end));
        }
    }
}

fn area_rows(image: &RgbImage, area: Area) -> impl Iterator<Item = &[u8]> {
    let columns = area.left * CHANNELS..(area.left + area.width) * CHANNELS;
    let stride = image.width() * CHANNELS;
    image.bytes().chunks_exact(stride).skip(area.top).take(area.height).map(move |row| &row[columns.clone()])
}

fn scaled(factor: f64) -> [[f32; 256]; CHANNELS] {
    [std::array::from_fn(|byte| byte as f32 * factor as f32); CHANNELS]
}

/// Returns `(byte - mean / factor) / (std / factor)`, each step rounded to 32 bits. To scale first
/// and normalize then would differ in the last bits.
fn normalized(factor: f64, Normal { mean, std }: Normal) -> [[f32; 256]; CHANNELS] {
    let inverse = (1.0 / factor) as f32;
    std::array::from_fn(|channel| {
        let (mean, std) = (mean[channel] as f32 * inverse, std[channel] as f32 * inverse);
        std::array::from_fn(|byte| (byte as f32 - mean) / std)
    })
}

impl std::fmt::Debug for ValueTable {
    /// Writes the numbers that determine the table.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ValueTable({:?}, {:?})", self.factor, self.normal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalization_is_one_step() {
        let normal = Normal { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
        let table = ValueTable::new(1.0 / 255.0, Some(normal));
        assert_eq!(table.values[0][0].to_bits(), (-(0.485_f32 * 255.0) / (0.229_f32 * 255.0)).to_bits());
    }

    #[test]
    fn a_patch_repeats_each_channel_in_time() {
        let image = RgbImage::new(1, 1, vec![1, 2, 3]).expect("one pixel");
        let mut out = Vec::new();
        let area = Area { left: 0, top: 0, width: 1, height: 1 };
        ValueTable::new(1.0, None).push_patch(&image, area, 2, &mut out);
        assert_eq!(out, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    }
}
