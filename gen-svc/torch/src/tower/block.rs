//! A block of a tower: attention, then the MLP.

use tandem_core::error::StepError;
use tandem_core::models::vision::tower::{self, Activation, Rotary};
use tch::Tensor;

use super::parts::{Linear, Norm, activated};
use crate::decoder::load::Loader;
use crate::device::upload::{Later, Upload};
use crate::error::Error;
use crate::target::TorchTarget;

#[derive(Debug)]
pub(super) struct Block {
    before_attention: Norm,
    attention: Attention,
    after_attention: Option<Norm>,
    before_mlp: Norm,
    mlp: Mlp,
    after_mlp: Option<Norm>,
    scales: Option<[Tensor; 2]>,
}

#[derive(Debug)]
struct Attention {
    description: tower::Attention,
    qkv: Vec<Linear>,
    norms: Vec<Norm>,
    output: Linear,
}

#[derive(Debug)]
struct Mlp {
    first: Linear,
    up: Option<Linear>,
    activation: Activation,
    last: Linear,
}

/// Cosine and sine of each patch, `[N, 1, parts, n]`.
#[derive(Debug)]
pub(super) struct Rotation {
    cos: Tensor,
    sin: Tensor,
    parts: i64,
}

impl Rotation {
    /// Plans the rotation by `angles`, `[N, pairs]`.
    pub(super) fn plan(angles: Vec<f32>, rotary: &Rotary, target: TorchTarget, upload: &mut Upload) -> Later<Self> {
        let parts = rotary.parts as i64;
        let shape = [-1, 1, parts, rotary.pairs.len() as i64 / parts];
        let angles = upload.add(angles);
        Box::new(move |sent| {
            let angles = sent.get(angles)?.f_view(shape)?;
            let [cos, sin] = [angles.f_cos()?, angles.f_sin()?].map(|numbers| numbers.f_to_kind(target.dtype));
            Ok(Self { cos: cos?, sin: sin?, parts })
        })
    }

    /// Returns the rotation of some patches.
    pub(super) fn part(&self, start: i64, count: i64) -> Result<Self, Error> {
        let (cos, sin) = (self.cos.f_narrow(0, start, count)?, self.sin.f_narrow(0, start, count)?);
        Ok(Self { cos, sin, parts: self.parts })
    }

    /// `[n, N, H, D] -> [n, N, H, D]`
    fn apply(&self, x: &Tensor) -> Result<Tensor, Error> {
        let shape = x.size();
        let pairs = x.f_view([shape[0], shape[1], shape[2], self.parts, 2, -1])?;
        let (a, b) = (pairs.f_select(4, 0)?, pairs.f_select(4, 1)?);
        let first = a.f_mul(&self.cos)?.f_sub(&b.f_mul(&self.sin)?)?;
        let second = b.f_mul(&self.cos)?.f_add(&a.f_mul(&self.sin)?)?;
        Ok(Tensor::f_stack(&[first, second], 4)?.f_view(shape.as_slice())?)
    }
}

impl Block {
    /// True if its attention is limited to windows.
    pub(super) fn has_windows(&self) -> bool {
        self.attention.description.in_window
    }

    pub(super) fn load(loader: &Loader<'_>, block: &tower::Block) -> Result<Self, Error> {
        let norm = |norm: &tower::Norm| Norm::load(loader, norm);
        let size = block.before_attention.size;
        let scales = block
            .scales
            .as_ref()
            .map(|[one, two]| Ok::<_, Error>([loader.tensor(one, &[size])?, loader.tensor(two, &[size])?]));
        Ok(Self {
            before_attention: norm(&block.before_attention)?,
            attention: Attention::load(loader, &block.attention)?,
            after_attention: block.after_attention.as_ref().map(norm).transpose()?,
            before_mlp: norm(&block.before_mlp)?,
            mlp: Mlp::load(loader, &block.mlp)?,
            after_mlp: block.after_mlp.as_ref().map(norm).transpose()?,
            scales: scales.transpose()?,
        })
    }

    /// Queries, `[n, N, H, D]`, keys and values, `[n, N, K, D]`, of `x`, `[n, N, C]`.
    pub(super) fn project(&self, x: &Tensor, rotation: Option<&Rotation>) -> Result<[Tensor; 3], Error> {
        let [q, k, v] = self.attention.heads(&self.before_attention.forward(x)?)?;
        let rotated = |x: Tensor| rotation.map_or(Ok(x.shallow_clone()), |rotation| rotation.apply(&x));
        Ok([rotated(q)?, rotated(k)?, v])
    }

    /// The block's output for some patches, `[n, M, C]`, with their queries and the keys and values of
    /// all patches.
    pub(super) fn attend(&self, x: &Tensor, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor, Error> {
        self.after(x, &self.attention.attend(q, k, v)?)
    }

    /// The block's output for whole windows of `patches` patches each, `[1, M, C]`.
    pub(super) fn in_windows(&self, x: &Tensor, rotation: Option<&Rotation>, patches: i64) -> Result<Tensor, Error> {
        let [q, k, v] = self.project(x, rotation)?;
        let [_, all, heads, size] = q.size()[..] else { return Err(Error::Step(StepError::Broken)) };
        let windows = |x: &Tensor| x.f_view([-1, patches, x.size()[2], size]);
        let attended = self.attention.attend(&windows(&q)?, &windows(&k)?, &windows(&v)?)?;
        self.after(x, &attended.f_reshape([1, all, heads, size])?)
    }

    /// The output after attention, `[n, M, H, D]`.
    fn after(&self, x: &Tensor, attended: &Tensor) -> Result<Tensor, Error> {
        let (count, patches, _) = x.size3()?;
        let attended = self.attention.output.forward(&attended.f_reshape([count, patches, -1])?)?;
        let x = self.add(x, attended, self.after_attention.as_ref(), 0)?;
        let fed = self.mlp.forward(&self.before_mlp.forward(&x)?)?;
        self.add(&x, fed, self.after_mlp.as_ref(), 1)
    }

    /// Adds a branch, after its norm and its scale.
    fn add(&self, x: &Tensor, branch: Tensor, norm: Option<&Norm>, index: usize) -> Result<Tensor, Error> {
        let branch = norm.map_or(Ok(branch.shallow_clone()), |norm| norm.forward(&branch))?;
        let scaled = self.scales.as_ref().map_or(Ok(branch.shallow_clone()), |scales| branch.f_mul(&scales[index]))?;
        Ok(x.f_add(&scaled)?)
    }
}

impl Attention {
    fn load(loader: &Loader<'_>, attention: &tower::Attention) -> Result<Self, Error> {
        let norms = match &attention.norms {
            tower::HeadNorms::None => Vec::new(),
            tower::HeadNorms::Whole(norms) => norms.iter().collect(),
            tower::HeadNorms::PerHead(norms) => norms.iter().collect::<Vec<_>>(),
        };
        Ok(Self {
            qkv: attention.qkv.iter().map(|linear| Linear::load(loader, linear)).collect::<Result<_, _>>()?,
            norms: norms.into_iter().map(|norm| Norm::load(loader, norm)).collect::<Result<_, _>>()?,
            output: Linear::load(loader, &attention.output)?,
            description: attention.clone(),
        })
    }

    /// Queries, `[n, N, H, D]`, keys and values, `[n, N, K, D]`, normalized.
    fn heads(&self, x: &Tensor) -> Result<[Tensor; 3], Error> {
        let (count, patches, _) = x.size3()?;
        let tower::Attention { heads, kv_heads, head_size, ref norms, .. } = self.description;
        let shapes = [heads, kv_heads, kv_heads].map(|heads| [count, patches, heads as i64, head_size as i64]);
        let whole: Vec<Tensor> = match self.qkv.as_slice() {
            [stacked] => stacked.forward(x)?.f_chunk(3, -1)?,
            several => several.iter().map(|linear| linear.forward(x)).collect::<Result<_, _>>()?,
        };
        let part = |i: usize| {
            let norm = self.norms.get(i);
            let normed = |x: &Tensor| norm.map_or(Ok(x.shallow_clone()), |norm| norm.forward(x));
            match norms {
                tower::HeadNorms::PerHead(_) => normed(&whole[i].f_reshape(shapes[i])?),
                _ => Ok(normed(&whole[i])?.f_reshape(shapes[i])?),
            }
        };
        Ok([part(0)?, part(1)?, part(2)?])
    }

    /// `[n, N, H, D]` each.
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor, Error> {
        let [q, k, v] = [q, k, v].map(|x| x.f_transpose(1, 2));
        let tower::Attention { heads, kv_heads, scale, .. } = self.description;
        let (scale, is_grouped) = (Some(scale), heads != kv_heads);
        let attended =
            Tensor::f_scaled_dot_product_attention(&q?, &k?, &v?, None::<&Tensor>, 0.0, false, scale, is_grouped)?;
        Ok(attended.f_transpose(1, 2)?)
    }
}

impl Mlp {
    fn load(loader: &Loader<'_>, mlp: &tower::Mlp) -> Result<Self, Error> {
        Ok(Self {
            first: Linear::load(loader, &mlp.first)?,
            up: mlp.up.as_ref().map(|up| Linear::load(loader, up)).transpose()?,
            activation: mlp.activation,
            last: Linear::load(loader, &mlp.last)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let active = activated(self.activation, &self.first.forward(x)?)?;
        match &self.up {
            None => self.last.forward(&active),
            Some(up) => self.last.forward(&active.f_mul(&up.forward(x)?)?),
        }
    }
}
