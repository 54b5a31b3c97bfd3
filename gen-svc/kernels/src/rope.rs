//! Rotary position embeddings, and the per-head norms that some models apply before them.

use crate::clock::Part;
use crate::error::{Error, expect, expect_multiple};
use crate::isa::{Isa, Kernel, LANES};
use crate::kernels::Kernels;
use crate::norm::{Norm, normalize, rows_per_task};

/// Cosines and sines of every token of a step, computed once for all layers. Reused between steps.
#[derive(Debug, Default)]
pub struct Angles {
    /// Rotated pairs of a head: half the rotary dimension.
    pairs: usize,
    /// \[tokens\]\[pairs\].
    cosines: Vec<f32>,
    /// \[tokens\]\[pairs\].
    sines: Vec<f32>,
}

impl Angles {
    /// Replaces the content by the angles of `positions`.
    ///
    /// An angle is the product of position and inverse frequency, in f32, as in the reference
    /// implementations. Cosines and sines are multiplied by `factor`.
    pub fn fill(&mut self, inverse_frequencies: &[f32], factor: f32, positions: impl Iterator<Item = usize>) {
        self.fill_axes(inverse_frequencies, None, factor, positions.map(|position| [position; 3]));
    }

    /// Does the same with three positions per token. `axes` has the axis of each frequency, 0 to 2.
    /// `None`: all frequencies use the first axis.
    pub fn fill_axes(
        &mut self,
        inverse_frequencies: &[f32],
        axes: Option<&[usize]>,
        factor: f32,
        positions: impl Iterator<Item = [usize; 3]>,
    ) {
        self.clear(inverse_frequencies.len());
        self.extend(inverse_frequencies, axes, factor, positions);
    }

    /// Removes all tokens. Those added next have `pairs` rotated pairs.
    pub fn clear(&mut self, pairs: usize) {
        self.pairs = pairs;
        self.cosines.clear();
        self.sines.clear();
    }

    /// Adds the angles of `positions`. Precondition: there are as many frequencies as [pairs](Self::clear).
    pub fn extend(
        &mut self,
        inverse_frequencies: &[f32],
        axes: Option<&[usize]>,
        factor: f32,
        positions: impl Iterator<Item = [usize; 3]>,
    ) {
        debug_assert_eq!(inverse_frequencies.len(), self.pairs, "a frequency for each pair");
        let axis = |pair: usize| axes.map_or(0, |axes| axes[pair]);
        for position in positions {
            for (pair, frequency) in inverse_frequencies.iter().enumerate() {
                let (sine, cosine) = (position[axis(pair)] as f32 * frequency).sin_cos();
                self.cosines.push(cosine * factor);
                self.sines.push(sine * factor);
            }
        }
    }

    fn token(&self, token: usize) -> (&[f32], &[f32]) {
        let start = token * self.pairs;
        (&self.cosines[start..][..self.pairs], &self.sines[start..][..self.pairs])
    }
}

/// The operations on each head of a row: a norm, a rotation, or both.
#[derive(Debug, Clone, Copy)]
pub struct Heads<'a> {
    pub head_dim: usize,
    /// Norm over one head, before the rotation.
    pub norm: Option<Norm<'a>>,
    /// Element i of a head is paired with element i + pairs. Elements beyond the rotary dimension
    /// stay unchanged.
    pub angles: Option<&'a Angles>,
}

impl Kernels {
    /// Normalizes and rotates the heads of queries or keys in place: `x` is
    /// \[tokens\]\[heads\]\[head_dim\].
    pub fn rotate(&self, x: &mut [f32], tokens: usize, heads: Heads<'_>) -> Result<(), Error> {
        let _running = self.time(Part::Rotation);
        heads.check(x.len(), tokens)?;
        let columns = x.len() / tokens;
        let rows = rows_per_task(columns);
        self.team.run_on_chunks(x, rows * columns, &|task, x| {
            for (token, x) in x.chunks_exact_mut(columns).enumerate() {
                self.level.run(Token { x, heads, token: task * rows + token });
            }
        });
        Ok(())
    }
}

impl Heads<'_> {
    fn check(&self, length: usize, tokens: usize) -> Result<(), Error> {
        expect_multiple("tokens", 1, tokens)?;
        expect_multiple("head dimension", 1, self.head_dim)?;
        expect_multiple("heads", tokens.saturating_mul(self.head_dim), length)?;
        if let Some(norm) = self.norm {
            expect("weights of a head's norm", self.head_dim, norm.weight.len())?;
        }
        if let Some(angles) = self.angles {
            expect("angles", tokens * angles.pairs, angles.cosines.len())?;
            expect("rotary dimension beyond the head dimension", 0, (2 * angles.pairs).saturating_sub(self.head_dim))?;
        }
        Ok(())
    }
}

struct Token<'a> {
    /// \[heads\]\[head_dim\].
    x: &'a mut [f32],
    heads: Heads<'a>,
    token: usize,
}

impl Kernel for Token<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for head in self.x.chunks_exact_mut(self.heads.head_dim) {
            if let Some(norm) = &self.heads.norm {
                normalize(isa, head, norm);
            }
            if let Some(angles) = self.heads.angles {
                let (cosines, sines) = angles.token(self.token);
                rotate(isa, head, cosines, sines);
            }
        }
    }
}

/// Rounds each product and each sum, as the reference implementations do.
#[inline(always)]
fn rotate<I: Isa>(isa: I, head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    let (first, rest) = head.split_at_mut(cosines.len());
    let second = &mut rest[..cosines.len()];
    let angles = cosines.chunks(LANES).zip(sines.chunks(LANES));
    for ((a, b), (cosine, sine)) in first.chunks_mut(LANES).zip(second.chunks_mut(LANES)).zip(angles) {
        let (x, y) = (isa.load_part(a, 0.0), isa.load_part(b, 0.0));
        let (cosine, sine) = (isa.load_part(cosine, 0.0), isa.load_part(sine, 0.0));
        isa.store_part(isa.sub(isa.mul(x, cosine), isa.mul(y, sine)), a);
        isa.store_part(isa.add(isa.mul(y, cosine), isa.mul(x, sine)), b);
    }
}
