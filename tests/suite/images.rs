//! The preparation of images by every family, compared with transformers: pixel values, and the text
//! that replaces a placeholder.

mod oracle;
mod processors;

use tandem_images::PreparedImage;
use tandem_model_files::digest::hex_sha256;

/// Returns the SHA-256 of the pixel values of a request's images, as 32-bit floats, in a tensor of this
/// shape. transformers adds zeros where each image has a place along the first dimension.
fn digest(images: &[&PreparedImage], shape: &[usize]) -> String {
    let rank = images[0].plan.shape.len();
    let is_padded = shape.len() > rank && shape[0] == images.len();
    let of_image = if is_padded { &shape[1..] } else { &[] };
    let values = images.iter().flat_map(|image| padded(&image.pixels(), &image.plan.shape, of_image));
    hex_sha256(&values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
}

/// Adds zeros at the end of each dimension. An empty `shape` adds none.
fn padded(values: &[f32], own: &[usize], shape: &[usize]) -> Vec<f32> {
    let ([length, inner @ ..], [padded_length, padded_inner @ ..]) = (own, shape) else { return values.to_vec() };
    let count: usize = inner.iter().product();
    let parts = (0..*length).flat_map(|part| padded(&values[part * count..][..count], inner, padded_inner));
    let mut out: Vec<f32> = parts.collect();
    out.resize(padded_length * padded_inner.iter().product::<usize>(), 0.0);
    out
}
