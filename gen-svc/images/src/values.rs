//! Pixel values of bytes: scaling and normalization.

use crate::image::CHANNELS;
use crate::parallel::in_parts;

/// Mean and standard deviation of each channel, for values from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normal {
    pub mean: [f64; CHANNELS],
    pub std: [f64; CHANNELS],
}

/// The value of each byte, per channel.
#[derive(PartialEq)]
pub struct ValueTable {
    values: [[f32; 256]; CHANNELS],
    factor: f64,
    normal: Option<Normal>,
}

impl ValueTable {
    /// Returns the values of `byte * factor`, then normalized if `normal` is given.
    pub fn new(factor: f64, normal: Option<Normal>) -> Self {
        let values = normal.map_or_else(|| scaled(factor), |normal| normalized(factor, normal));
        Self { values, factor, normal }
    }

    /// Writes the values of `bytes`. The channel changes every `run` bytes.
    pub(crate) fn write(&self, bytes: &[u8], run: usize, out: &mut [f32]) {
        in_parts(out, CHANNELS * run, |first, out| {
            let bytes = &bytes[first * CHANNELS * run..];
            for (bytes, out) in bytes.chunks_exact(CHANNELS * run).zip(out.chunks_exact_mut(CHANNELS * run)) {
                let channels = bytes.chunks_exact(run).zip(out.chunks_exact_mut(run)).zip(&self.values);
                for ((bytes, out), values) in channels {
                    for (&byte, out) in bytes.iter().zip(out) {
                        *out = values[usize::from(byte)];
                    }
                }
            }
        });
    }
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
    fn channels_take_turns_in_runs() {
        let table = ValueTable::new(1.0, Some(Normal { mean: [0.0, 10.0, 20.0], std: [1.0; 3] }));
        let values = |run: usize| {
            let mut out = [0.0; 6];
            table.write(&[1, 1, 12, 12, 23, 23], run, &mut out);
            out
        };
        assert_eq!(values(2), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!(values(1), [1.0, -9.0, -8.0, 12.0, 13.0, 3.0]);
    }
}
