//! Bytes of an image, arranged as a tower takes them.

mod channels;

use crate::image::{Area, CHANNELS, RgbImage, grid};
use crate::parallel::in_parts;

/// Writes `area` by channel, row and column to the start of each channel's part of `out`. The parts
/// are equally long.
pub fn write_planes(image: &RgbImage, area: Area, out: &mut [u8]) {
    let (red, rest) = out.split_at_mut(out.len() / CHANNELS);
    let (green, blue) = rest.split_at_mut(rest.len() / 2);
    for row in 0..area.height {
        // Bytes after the row are overwritten by the next one.
        let pixels = &image.bytes()[((area.top + row) * image.width() + area.left) * CHANNELS..];
        let start = row * area.width;
        channels::split(pixels, area.width, [&mut red[start..], &mut green[start..], &mut blue[start..]]);
    }
}

/// Cuts the image into tiles of (height, width) and writes them, row by row. Each is by channel, row
/// and column.
pub fn write_tiles(image: &RgbImage, tile: (usize, usize), out: &mut [u8]) {
    let length = CHANNELS * tile.0 * tile.1;
    in_parts(out, length, |first, tiles| {
        let areas = grid(image.height() / tile.0, image.width() / tile.1, tile).skip(first);
        for (area, tile) in areas.zip(tiles.chunks_exact_mut(length)) {
            write_planes(image, area, tile);
        }
    });
}

/// Writes `area` by row, column and channel.
pub fn write_pixels(image: &RgbImage, area: Area, out: &mut [u8]) {
    for (row, out) in area_rows(image, area).zip(out.chunks_exact_mut(area.width * CHANNELS)) {
        out.copy_from_slice(row);
    }
}

/// Writes a patch by channel, time, row and column. All times are equal.
pub fn write_patch(image: &RgbImage, area: Area, times: usize, out: &mut [u8]) {
    write_planes(image, area, out);
    let length = area.width * area.height;
    for channel in out.chunks_exact_mut(length * times) {
        let (first, rest) = channel.split_at_mut(length);
        rest.chunks_exact_mut(length).for_each(|copy| copy.copy_from_slice(first));
    }
}

fn area_rows(image: &RgbImage, area: Area) -> impl Iterator<Item = &[u8]> {
    let columns = area.left * CHANNELS..(area.left + area.width) * CHANNELS;
    let stride = image.width() * CHANNELS;
    image.bytes().chunks_exact(stride).skip(area.top).take(area.height).map(move |row| &row[columns.clone()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_repeats_each_channel_in_time() {
        let image = RgbImage::new(1, 1, vec![1, 2, 3]).expect("one pixel");
        let mut out = [0; 6];
        write_patch(&image, image.area(), 2, &mut out);
        assert_eq!(out, [1, 1, 2, 2, 3, 3]);
    }
}
