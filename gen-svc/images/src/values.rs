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

    /// Writes the values of `area` by channel, row and column to the start of each channel's part
    /// of `out`, which are equally long.
    pub(crate) fn write_planes(&self, image: &RgbImage, area: Area, out: &mut [f32]) {
        let (red, rest) = out.split_at_mut(out.len() / CHANNELS);
        let (green, blue) = rest.split_at_mut(rest.len() / 2);
        let planes = [red, green, blue].map(|plane| plane.chunks_exact_mut(area.width));
        let [red, green, blue] = planes;
        let [red_values, green_values, blue_values] = &self.values;
        for (row, ((red, green), blue)) in area_rows(image, area).zip(red.zip(green).zip(blue)) {
            let values = red.iter_mut().zip(green).zip(blue);
            for (pixel, ((red, green), blue)) in row.as_chunks::<CHANNELS>().0.iter().zip(values) {
                *red = red_values[usize::from(pixel[0])];
                *green = green_values[usize::from(pixel[1])];
                *blue = blue_values[usize::from(pixel[2])];
            }
        }
    }

    /// Writes the values of `area` by row, column and channel.
    pub(crate) fn write_pixels(&self, image: &RgbImage, area: Area, out: &mut [f32]) {
        for (row, out) in area_rows(image, area).zip(out.chunks_exact_mut(area.width * CHANNELS)) {
            for (pixel, out) in row.as_chunks::<CHANNELS>().0.iter().zip(out.as_chunks_mut::<CHANNELS>().0) {
                *out = std::array::from_fn(|channel| self.values[channel][usize::from(pixel[channel])]);
            }
        }
    }

    /// Writes the values of a patch by channel, time, row and column. All times are equal.
    pub(crate) fn write_patch(&self, image: &RgbImage, area: Area, times: usize, out: &mut [f32]) {
        self.write_planes(image, area, out);
        let length = area.width * area.height;
        for channel in out.chunks_exact_mut(length * times) {
            let (first, rest) = channel.split_at_mut(length);
            rest.chunks_exact_mut(length).for_each(|copy| copy.copy_from_slice(first));
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
        let mut out = [0.0; 6];
        ValueTable::new(1.0, None).write_patch(&image, image.area(), 2, &mut out);
        assert_eq!(out, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    }
}
