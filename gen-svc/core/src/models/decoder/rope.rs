//! Rotary positions as data.

use std::f32::consts::PI;

/// Rotary positions over halves: of the first `2n` numbers of a head, number i is rotated with
/// number i + n, by `position * frequencies[i]`. The other numbers are unchanged. A position has
/// three axes: time, height and width. They are equal outside images.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// n of them, in radians per position.
    pub frequencies: Vec<f32>,
    /// The frequencies of long sequences. `None`: all sequences have the same.
    pub long: Option<LongRope>,
    /// The factor of cosine and sine.
    pub scale: f32,
    /// The axis of each frequency, 0 to 2. `None`: positions have one axis.
    pub axes: Option<Vec<usize>>,
}

/// The frequencies of sequences with more than a number of tokens. They apply to all positions of such a
/// sequence, also to those before that number.
#[derive(Debug, Clone, PartialEq)]
pub struct LongRope {
    /// The most tokens of a sequence that is not long.
    pub after: usize,
    /// n of them, in radians per position.
    pub frequencies: Vec<f32>,
}

impl Rope {
    /// Returns frequencies that fall from 1 to almost 1 / `theta` over `rotary_dim` numbers.
    /// Computed in f32, in the steps of transformers (`modeling_rope_utils.py`): rounding errors
    /// affect high positions.
    #[must_use]
    pub fn new(rotary_dim: usize, theta: f32) -> Self {
        let frequency = |i: usize| 1.0 / theta.powf((2 * i) as f32 / rotary_dim as f32);
        Self { frequencies: (0..rotary_dim / 2).map(frequency).collect(), long: None, scale: 1.0, axes: None }
    }

    /// Returns the frequencies of a sequence.
    #[must_use]
    pub fn of(&self, is_long: bool) -> &[f32] {
        self.long.as_ref().filter(|_| is_long).map_or(&self.frequencies, |long| &long.frequencies)
    }

    /// Stops all frequencies from the `count`-th on.
    #[must_use]
    pub fn first(mut self, count: usize) -> Self {
        self.frequencies.iter_mut().skip(count).for_each(|frequency| *frequency = 0.0);
        self
    }

    /// Divides all frequencies by `factor`.
    #[must_use]
    pub fn linear(mut self, factor: f32) -> Self {
        self.frequencies.iter_mut().for_each(|frequency| *frequency /= factor);
        self
    }

    /// Divides each frequency by a divisor.
    #[must_use]
    pub fn divided(mut self, divisors: &[f32]) -> Self {
        self.frequencies.iter_mut().zip(divisors).for_each(|(frequency, divisor)| *frequency /= divisor);
        self
    }

    /// Applies Llama 3's scaling: long waves are stretched, short waves are unchanged, and waves
    /// between are interpolated.
    #[must_use]
    pub fn llama3(mut self, scaling: Llama3) -> Self {
        let Llama3 { factor, low, high, original } = scaling;
        for frequency in &mut self.frequencies {
            let wave = 2.0 * PI / *frequency;
            let stretched = *frequency / factor;
            *frequency = if wave > original / low {
                stretched
            } else if wave < original / high {
                *frequency
            } else {
                let share = (original / wave - low) / (high - low);
                (1.0 - share) * stretched + share * *frequency
            };
        }
        self
    }
}

/// The settings of Llama 3's scaling. In `config.json`: `factor`, `low_freq_factor`,
/// `high_freq_factor` and `original_max_position_embeddings`.
#[derive(Debug, Clone, Copy)]
pub struct Llama3 {
    /// The factor of long waves.
    pub factor: f32,
    /// Waves longer than `original / low` are long.
    pub low: f32,
    /// Waves shorter than `original / high` are short.
    pub high: f32,
    /// The context length before the scaling.
    pub original: f32,
}
