//! Grouped-query attention over paged keys and values.
//!
//! Shapes: T tokens of a call, E hidden size, H query heads, K key/value heads, D head size.

use tch::Tensor;

use super::call::Call;
use super::layers::{Linear, RmsNorm};
use super::load::Loader;
use super::seen::View;
use crate::error::Error;
use crate::models::decoder::{self, Pairs};

#[derive(Debug)]
pub(super) struct Attention {
    qkv: Linear,
    qk_norm: [Option<RmsNorm>; 2],
    value_epsilon: Option<f64>,
    output: Linear,
    /// H and K.
    heads: [i64; 2],
    head_size: i64,
    rope: Option<usize>,
    view: View,
    pairs: Pairs,
    /// The layer of the keys and values.
    layer: usize,
}

impl Attention {
    /// Creates the attention of layer `layer`, which has reach number `reach`.
    pub(super) fn load(
        attention: &decoder::Attention,
        layer: usize,
        reach: usize,
        loader: &Loader<'_>,
    ) -> Result<Self, Error> {
        let norm = |i: usize| attention.qk_norm[i].as_ref().map(|norm| RmsNorm::load(loader, norm)).transpose();
        Ok(Self {
            qkv: Linear::load(loader, &attention.qkv)?,
            qk_norm: [norm(0)?, norm(1)?],
            value_epsilon: attention.value_epsilon.map(f64::from),
            output: Linear::load(loader, std::slice::from_ref(&attention.output))?,
            heads: [attention.heads as i64, attention.kv_heads as i64],
            head_size: attention.head_size as i64,
            rope: attention.rope,
            view: View { scale: f64::from(attention.scale), softcap: attention.softcap, reach },
            pairs: attention.pairs,
            layer: if let Pairs::Shared(source) = attention.pairs { source } else { layer },
        })
    }

    /// `[T, E] -> [T, E]`
    pub(super) fn forward(&self, x: &Tensor, call: &Call<'_>) -> Result<Tensor, Error> {
        let qkv = self.qkv.forward(x)?.f_view([x.size2()?.0, -1, self.head_size])?; // [T, H + 0 to 2 K, D]
        let q = self.queries(&qkv, call)?;
        self.output.forward(&call.kv.attend(self.layer, &call.runs, &q, self.view)?)
    }

    /// Writes the keys and values, if the layer computes them. Returns the queries, `[T, H, D]`.
    fn queries(&self, qkv: &Tensor, call: &Call<'_>) -> Result<Tensor, Error> {
        let [queries, pairs] = self.heads;
        let first_value = match self.pairs {
            Pairs::Shared(_) => return self.rotate(qkv, [queries, 0], call),
            Pairs::KeysAsValues => queries,
            Pairs::Computed => queries + pairs,
        };
        let rotated = self.rotate(&qkv.f_narrow(1, 0, queries + pairs)?, self.heads, call)?; // [T, H + K, D]
        let v = self.normalize_values(qkv.f_narrow(1, first_value, pairs)?)?; // [T, K, D]
        call.kv.write(self.layer, &call.runs, &rotated.f_narrow(1, queries, pairs)?, &v)?;
        Ok(rotated.f_narrow(1, 0, queries)?)
    }

    /// Queries and keys, `heads` of each, normalized and rotated: `[T, heads, D] -> [T, heads, D]`
    fn rotate(&self, qk: &Tensor, heads: [i64; 2], call: &Call<'_>) -> Result<Tensor, Error> {
        let part = |norm: &Option<RmsNorm>, first: i64, count: i64| {
            let part = qk.f_narrow(1, first, count)?;
            norm.as_ref().map_or(Ok(part.shallow_clone()), |norm| norm.forward(&part))
        };
        let normed = match &self.qk_norm {
            [None, None] => qk.shallow_clone(),
            [of_q, of_k] => Tensor::f_cat(&[part(of_q, 0, heads[0])?, part(of_k, heads[0], heads[1])?], 1)?,
        };
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
