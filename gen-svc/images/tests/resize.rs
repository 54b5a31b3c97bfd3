//! The resize against a slow one that follows the formula step by step.

use std::f64::consts::PI;

use tandem_images::{Filter, RgbImage, resize};

const FILTERS: [(Filter, f64); 3] = [(Filter::Bilinear, 1.0), (Filter::Bicubic, 2.0), (Filter::Lanczos, 3.0)];

fn kernel(filter: Filter, x: f64) -> f64 {
    let sinc = |x: f64| if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) };
    let near = x.abs();
    match filter {
        Filter::Bilinear => (1.0 - near).max(0.0),
        Filter::Bicubic if near < 1.0 => (1.5 * near - 2.5) * near * near + 1.0,
        Filter::Bicubic if near < 2.0 => (((near - 5.0) * near + 8.0) * near - 4.0) * -0.5,
        Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
        _ => 0.0,
    }
}

/// Returns the first source pixel and the weights of each result pixel.
fn weights(from: usize, to: usize, (filter, reach): (Filter, f64)) -> Vec<(usize, Vec<f64>)> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let row = |index: usize| {
        let center = scale * (index as f64 + 0.5);
        let first = (center - reach * stretch + 0.5).max(0.0) as usize;
        let end = ((center + reach * stretch + 0.5) as usize).min(from);
        let row: Vec<f64> = (first..end).map(|pixel| kernel(filter, (pixel as f64 - center + 0.5) / stretch)).collect();
        let sum: f64 = row.iter().sum();
        (first, row.iter().map(|weight| weight / sum).collect())
    };
    (0..to).map(row).collect()
}

fn slow_axis(line: &[u8], to: usize, filter: (Filter, f64)) -> Vec<u8> {
    if line.len() == to {
        return line.to_vec();
    }
    let rows = weights(line.len(), to, filter);
    let largest = rows.iter().flat_map(|(_, row)| row).copied().fold(0.0, f64::max);
    let mut bits = 0;
    while bits < 22 && ((0.5 + largest * f64::from(1 << (bits + 1))) as i64) < 1 << 15 {
        bits += 1;
    }
    let whole = |weight: f64| (weight * f64::from(1 << bits) + 0.5_f64.copysign(weight)) as i64;
    let pixel = |(first, row): &(usize, Vec<f64>)| {
        let sum: i64 = row.iter().zip(&line[*first..]).map(|(weight, &byte)| whole(*weight) * i64::from(byte)).sum();
        ((sum + (1 << (bits - 1))) >> bits).clamp(0, 255) as u8
    };
    rows.iter().map(pixel).collect()
}

fn slow(image: &RgbImage, width: usize, height: usize, filter: (Filter, f64)) -> Vec<u8> {
    let mut wide = vec![0; width * image.height() * 3];
    let mut out = vec![0; width * height * 3];
    for channel in 0..3 {
        for (row, line) in image.bytes().chunks_exact(image.width() * 3).enumerate() {
            let line: Vec<u8> = line.iter().skip(channel).step_by(3).copied().collect();
            for (column, byte) in slow_axis(&line, width, filter).into_iter().enumerate() {
                wide[(row * width + column) * 3 + channel] = byte;
            }
        }
        for column in 0..width {
            let line: Vec<u8> = wide.iter().skip(column * 3 + channel).step_by(width * 3).copied().collect();
            for (row, byte) in slow_axis(&line, height, filter).into_iter().enumerate() {
                out[(row * width + column) * 3 + channel] = byte;
            }
        }
    }
    out
}

#[test]
fn random_sizes_equal_the_slow_resize() {
    let mut state = 7_u32;
    let mut next = |limit: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % limit
    };
    for round in 0..240 {
        let filter = FILTERS[round % 3];
        let (width, height) = (1 + next(130), 1 + next(130));
        let sharp = next(2) == 0;
        let byte = |value: usize| if sharp { (value % 2 * 255) as u8 } else { value as u8 };
        let bytes = (0..width * height * 3).map(|_| byte(next(256))).collect();
        let image = RgbImage::new(width, height, bytes).expect("all bytes");
        let (to_width, to_height) =
            if round % 7 == 0 { (width, 1 + next(150)) } else { (1 + next(150), 1 + next(150)) };
        let resized = resize(&image, to_width, to_height, filter.0);
        assert_eq!((resized.width(), resized.height()), (to_width, to_height));
        let same = resized.bytes() == slow(&image, to_width, to_height, filter);
        assert!(same, "{width} x {height} to {to_width} x {to_height}, {filter:?}");
    }
}
