//! Grouped-query attention over paged keys and values.
//!
//! Shapes: T tokens of a call, E hidden size, H query heads, K key/value heads, D head size.

use tch::Tensor;

use super::call::Call;
use super::layers::{Linear, RmsNorm};
use super::load::Loader;
use super::seen::View;
use crate::error::Error;
use crate::models::decoder;

#[derive(Debug)]
pub(super) struct Attention {
    qkv: Linear,
    qk_norm: Option<[RmsNorm; 2]>,
    output: Linear,
    /// H and K.
    heads: [i64; 2],
    head_size: i64,
    rope: Option<usize>,
    view: View,
    /// Of the keys and values.
    layer: usize,
}

impl Attention {
    /// Creates the attention of layer `layer`, which uses window number `window`.
    pub(super) fn load(
        attention: &decoder::Attention,
        layer: usize,
        window: usize,
        loader: &Loader<'_>,
    ) -> Result<Self, Error> {
        let norm = |norm| RmsNorm::load(loader, norm);
        Ok(Self {
            qkv: Linear::load(loader, &attention.qkv)?,
            qk_norm: match &attention.qk_norm {
                Some([q, k]) => Some([norm(q)?, norm(k)?]),
                None => None,
            },
            output: Linear::load(loader, std::slice::from_ref(&attention.output))?,
            heads: [attention.heads as i64, attention.kv_heads as i64],
            head_size: attention.head_size as i64,
            rope: attention.rope,
            view: View { scale: f64::from(attention.scale), softcap: attention.softcap, window },
            layer,
        })
    }

    /// `[T, E] -> [T, E]`
    pub(super) fn forward(&self, x: &Tensor, call: &Call<'_>) -> Result<Tensor, Error> {
        let [queries, pairs] = self.heads;
        let qkv = self.qkv.forward(x)?.f_view([-1, queries + 2 * pairs, self.head_size])?; // [T, H + 2K, D]
        let rotated = self.rotate(&qkv.f_narrow(1, 0, queries + pairs)?, call)?; // [T, H + K, D]
        let q = rotated.f_narrow(1, 0, queries)?; // [T, H, D]
        let k = rotated.f_narrow(1, queries, pairs)?; // [T, K, D]
        let v = qkv.f_narrow(1, queries + pairs, pairs)?; // [T, K, D]
        call.kv.write(self.layer, &call.runs, &k, &v)?;
        self.output.forward(&call.kv.attend(self.layer, &call.runs, &q, self.view)?)
    }

    /// Queries and keys, normalized and rotated: `[T, H + K, D] -> [T, H + K, D]`
    fn rotate(&self, qk: &Tensor, call: &Call<'_>) -> Result<Tensor, Error> {
        let [queries, pairs] = self.heads;
        let normed = match &self.qk_norm {
            None => qk.shallow_clone(),
            Some([of_q, of_k]) => {
                let q = of_q.forward(&qk.f_narrow(1, 0, queries)?)?;
                Tensor::f_cat(&[q, of_k.forward(&qk.f_narrow(1, queries, pairs)?)?], 1)?
            }
        };
        match self.rope {
            None => Ok(normed),
            Some(rope) => call.rotations[rope].apply(&normed),
        }
    }
}
