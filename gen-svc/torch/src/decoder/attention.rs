//! Grouped-query attention over paged keys and values.
//!
//! Shapes: T tokens of a call, E hidden size, H query heads, K key/value heads, D head size.

use tandem_core::models::decoder::{self, Pairs};
use tch::Tensor;

use super::call::Call;
use super::layers::{HeadNorms, Linear};
use super::load::Loader;
use crate::error::Error;

#[derive(Debug)]
pub(super) struct Attention {
    qkv: Linear,
    qk_norm: Option<HeadNorms>,
    value_epsilon: Option<f64>,
    output: Linear,
    /// H and K.
    heads: [i64; 2],
    head_size: i64,
    rope: Option<usize>,
    scale: f64,
    /// The index of the method.
    method: usize,
    pairs: Pairs,
    /// The layer of the keys and values.
    layer: usize,
}

impl Attention {
    /// Creates the attention of a layer, which uses the keys and values of layer `layer` and method number
    /// `method`.
    pub(super) fn load(
        attention: &decoder::Attention,
        layer: usize,
        method: usize,
        loader: &Loader<'_>,
    ) -> Result<Self, Error> {
        let heads = [attention.heads, attention.kv_heads];
        let norms = attention.qk_norm.iter().zip(heads).filter_map(|(norm, count)| Some((norm.as_ref()?, count)));
        Ok(Self {
            qkv: Linear::load(loader, &attention.qkv)?,
            qk_norm: HeadNorms::load(&norms.collect::<Vec<_>>(), loader)?,
            value_epsilon: attention.value_epsilon.map(f64::from),
            output: Linear::load(loader, std::slice::from_ref(&attention.output))?,
            heads: heads.map(|count| count as i64),
            head_size: attention.head_size as i64,
            rope: attention.rope,
            scale: f64::from(attention.scale),
            method,
            pairs: attention.pairs,
            layer,
        })
    }

    /// `[T, E] -> [T, E]`
    pub(super) fn forward(&self, x: &Tensor, call: &Call<'_>) -> Result<Tensor, Error> {
        let qkv = self.qkv.forward(x)?.f_view([x.size2()?.0, -1, self.head_size])?; // [T, H + 0 to 2 K, D]
        let q = self.queries(&qkv, call)?;
        let attention = call.runs.attention[self.method].as_ref();
        let attended = call.kv.attend(self.layer, attention, &q, self.scale)?;
        self.output.forward(&call.runs.with_padding(attended)?)
    }

    /// Writes the keys and values, if the layer computes them. Returns the queries, `[T, H, D]`.
    fn queries(&self, qkv: &Tensor, call: &Call<'_>) -> Result<Tensor, Error> {
        let [queries, pairs] = self.heads;
        let first_value = match self.pairs {
            Pairs::Shared(_) => return self.rotate(qkv, call),
            Pairs::KeysAsValues => queries,
            Pairs::Computed => queries + pairs,
        };
        let rotated = self.rotate(&qkv.f_narrow(1, 0, queries + pairs)?, call)?; // [T, H + K, D]
        let v = self.normalize_values(qkv.f_narrow(1, first_value, pairs)?)?; // [T, K, D]
        let [keys, values] = [rotated.f_narrow(1, queries, pairs)?, v].map(|rows| call.runs.without_padding(&rows));
        call.kv.write(self.layer, &call.runs.slots, &keys?, &values?)?;
        Ok(rotated.f_narrow(1, 0, queries)?)
    }

    /// Normalizes and rotates queries and keys: `[T, heads, D] -> [T, heads, D]`
    fn rotate(&self, qk: &Tensor, call: &Call<'_>) -> Result<Tensor, Error> {
        let normed = self.qk_norm.as_ref().map_or(Ok(qk.shallow_clone()), |norms| norms.forward(qk))?;
        match self.rope {
            None => Ok(normed),
            Some(rope) => call.rotations[rope].apply(&normed),
        }
    }

    fn normalize_values(&self, v: Tensor) -> Result<Tensor, Error> {
        let Some(epsilon) = self.value_epsilon else { return Ok(v) };
        Ok(v.f_rms_norm([self.head_size], None::<&Tensor>, epsilon)?)
    }
}
