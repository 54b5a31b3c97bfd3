//! A vision tower as data. The computation, for the N patches of a tile or a picture:
//!
//! ```text
//! x = patches W + b, with the class token before them, plus positions
//! for each block:
//!     x = x + scale_1 * after_attention(attention(before_attention(x)))
//!     x = x + scale_2 * after_mlp(mlp(before_mlp(x)))
//! rows = projector(pool(final_norm(x)))
//! ```
//!
//! Shapes: N patches, C hidden size, H heads, D head size, F size inside the MLP, E hidden size of
//! the text model, P numbers of a patch. Matrices are `[out, in]`.

use crate::models::decoder::RequiredTensor;

/// A whole tower.
#[derive(Debug, Clone)]
pub struct Tower {
    /// C.
    pub hidden: usize,
    /// The embedding of patches.
    pub patches: Patches,
    /// The vector before the patches, with C numbers. It has no row in the output.
    pub class_token: Option<RequiredTensor>,
    /// The addition to the embedded patches.
    pub positions: Positions,
    /// The norm of the first block's input.
    pub input_norm: Option<Norm>,
    /// The rotation of queries and keys.
    pub rotary: Option<Rotary>,
    /// The blocks, in the order of computation.
    pub blocks: Vec<Block>,
    /// The side of an attention window in merged cells. `None`: no block has windows.
    pub window: Option<usize>,
    /// The norm after the last block.
    pub final_norm: Option<Norm>,
    /// From the last block to the text model.
    pub head: Head,
    /// Further heads, each after the block of this index.
    pub deep: Vec<(usize, Head)>,
    /// A learned row, `[E]`, which the order of an image's rows may contain.
    pub own_row: Option<RequiredTensor>,
}

/// The embedding of patches.
#[derive(Debug, Clone)]
pub struct Patches {
    /// The side of a patch in pixels.
    pub side: usize,
    /// The matrix `[C, P]`, in the shape in which it is stored.
    pub matrix: Linear,
    /// The stored shape of the matrix.
    pub shape: Vec<usize>,
    /// The tensors of the second and later frames, if each frame has its own: `[C, 3, side, side]`, as
    /// the first. Empty: one tensor has all frames.
    pub frames: Vec<String>,
    /// Pixel values are multiplied with this, then increased by the next.
    pub scale: f64,
    pub offset: f64,
}

/// The addition to the embedded patches.
#[derive(Debug, Clone)]
pub enum Positions {
    /// Nothing.
    None,
    /// A vector for each row of a table in `shape`, in the order of the sequence.
    Table { name: String, shape: Vec<usize>, order: TableOrder },
    /// The sum of a column's and a row's vector. `[2, size, C]`.
    Axes { name: String, size: usize },
    /// A table for a grid of `side` x `side`, interpolated linearly with aligned corners.
    Interpolated { name: String, side: usize },
}

/// Which vector of a table a patch takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableOrder {
    /// The vector of its index.
    Index,
    /// The vector of its fractional coordinates, computed in 32-bit floats (Idefics 3). For some
    /// numbers of patches, neighbours take the same vector.
    Fraction,
}

/// The rotation of queries and keys by a patch's row and column.
#[derive(Debug, Clone)]
pub struct Rotary {
    /// The parts of a head that are rotated separately: in each, number i with number i + n.
    pub parts: usize,
    /// The axis and the radians per position of each pair, part by part.
    pub pairs: Vec<(Axis, f32)>,
}

/// A coordinate of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Row,
    Column,
}

/// A block: attention, then the MLP.
#[derive(Debug, Clone)]
pub struct Block {
    pub before_attention: Norm,
    pub attention: Attention,
    pub after_attention: Option<Norm>,
    pub before_mlp: Norm,
    pub mlp: Mlp,
    pub after_mlp: Option<Norm>,
    /// The names of the vectors that scale both branches, `[C]`.
    pub scales: Option<[String; 2]>,
}

/// Attention of all patches of a tile, a picture or a window to each other.
#[derive(Debug, Clone)]
pub struct Attention {
    /// H.
    pub heads: usize,
    /// K, the heads of keys and values.
    pub kv_heads: usize,
    /// D.
    pub head_size: usize,
    /// The factor of a product of query and key.
    pub scale: f64,
    /// Queries, keys and values: one matrix each, or all stacked in one.
    pub qkv: Vec<Linear>,
    /// The norms of queries, keys and values.
    pub norms: HeadNorms,
    /// `[C, H * D]`
    pub output: Linear,
    /// True if a patch attends to its window only.
    pub in_window: bool,
}

/// The norms of queries, keys and values.
#[derive(Debug, Clone)]
pub enum HeadNorms {
    None,
    /// Of queries and keys over all heads.
    Whole([Norm; 2]),
    /// Of queries, keys and values over each head.
    PerHead([Norm; 3]),
}

/// The second branch of a block.
#[derive(Debug, Clone)]
pub struct Mlp {
    /// The first projection. Its activation is multiplied with `up(x)` if that is present.
    pub first: Linear,
    /// The second projection. `None`: not gated.
    pub up: Option<Linear>,
    pub activation: Activation,
    /// `[C, F]`
    pub last: Linear,
}

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    Silu,
    Gelu,
    GeluTanh,
    /// `x * sigmoid(1.702 x)`
    QuickGelu,
}

/// From patches to rows of the text model.
#[derive(Debug, Clone)]
pub struct Head {
    pub pool: Pool,
    pub steps: Vec<Step>,
}

/// How several patches become one row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pool {
    /// The mean of side x side patches, times a factor.
    Mean { side: usize, scale: f64 },
    /// The numbers of side x side patches, by row in the block, column in the block, number.
    Shuffle { side: usize },
    /// The numbers of side x side patches, by number, row in the block, column in the block. The
    /// first step is a norm of single patches.
    Unfold { side: usize },
    /// The numbers of this many consecutive patches. `late`: the first step is a norm of single
    /// patches.
    Join { count: usize, late: bool },
}

impl Pool {
    /// Returns the side of the square of patches that become one row.
    pub fn merge(self) -> usize {
        match self {
            Self::Mean { side, .. } | Self::Shuffle { side } | Self::Unfold { side } => side,
            Self::Join { count, .. } => count.isqrt(),
        }
    }
}

/// A step of a projector.
#[derive(Debug, Clone)]
pub enum Step {
    Norm(Norm),
    Linear(Linear),
    Activation(Activation),
    /// `(x - bias) * scale`: the names of both vectors, `[C]`.
    Standardize {
        bias: String,
        scale: String,
        size: usize,
    },
}

/// A norm over `size` numbers.
#[derive(Debug, Clone)]
pub struct Norm {
    pub kind: NormKind,
    /// The module's name. `None`: no weight.
    pub name: Option<String>,
    pub size: usize,
    pub epsilon: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NormKind {
    /// Mean and variance, with weight and bias.
    Layer,
    /// The root mean square, with weight + offset.
    Rms { offset: f64 },
}

/// A matrix.
#[derive(Debug, Clone)]
pub struct Linear {
    /// The tensor's name without `.weight`, or its whole name if it is stored `[in, out]`.
    pub name: String,
    /// The number of outputs.
    pub rows: usize,
    /// The number of inputs.
    pub columns: usize,
    /// True if there is a `name.bias`.
    pub bias: bool,
    /// True if it is stored `[in, out]`.
    pub is_transposed: bool,
    /// The module that has the limits of inputs and outputs: `input_min` and so on.
    pub limits: Option<String>,
}

/// The tensors of the limits of a matrix.
pub const LIMITS: [&str; 4] = ["input_min", "input_max", "output_min", "output_max"];

impl Norm {
    pub fn layer(name: String, size: usize, epsilon: f64) -> Self {
        Self { kind: NormKind::Layer, name: Some(name), size, epsilon }
    }

    pub fn rms(name: String, size: usize, epsilon: f64) -> Self {
        Self { kind: NormKind::Rms { offset: 0.0 }, name: Some(name), size, epsilon }
    }

    fn tensors(&self) -> Vec<RequiredTensor> {
        let Some(name) = &self.name else { return Vec::new() };
        let weight = (format!("{name}.weight"), vec![self.size]);
        let bias = (self.kind == NormKind::Layer).then(|| (format!("{name}.bias"), vec![self.size]));
        [weight].into_iter().chain(bias).collect()
    }
}

impl Linear {
    /// Creates a matrix without bias.
    pub fn new(name: impl Into<String>, rows: usize, columns: usize) -> Self {
        Self { name: name.into(), rows, columns, bias: false, is_transposed: false, limits: None }
    }

    pub fn with_bias(self, bias: bool) -> Self {
        Self { bias, ..self }
    }

    fn tensors(&self) -> Vec<RequiredTensor> {
        let weight = match self.is_transposed {
            true => (self.name.clone(), vec![self.columns, self.rows]),
            false => (format!("{}.weight", self.name), vec![self.rows, self.columns]),
        };
        [weight].into_iter().chain(self.others()).collect()
    }

    /// Returns the tensors besides the weight.
    fn others(&self) -> Vec<RequiredTensor> {
        let bias = self.bias.then(|| (format!("{}.bias", self.name), vec![self.rows]));
        let limits = self.limits.iter().flat_map(|path| LIMITS.map(|name| (format!("{path}.{name}"), Vec::new())));
        bias.into_iter().chain(limits).collect()
    }
}

impl Head {
    fn tensors(&self) -> Vec<RequiredTensor> {
        self.steps.iter().flat_map(Step::tensors).collect()
    }
}

impl Step {
    fn tensors(&self) -> Vec<RequiredTensor> {
        match self {
            Self::Norm(norm) => norm.tensors(),
            Self::Linear(linear) => linear.tensors(),
            Self::Activation(_) => Vec::new(),
            Self::Standardize { bias, scale, size } => [bias, scale].map(|name| (name.clone(), vec![*size])).into(),
        }
    }
}

impl Block {
    fn tensors(&self) -> Vec<RequiredTensor> {
        let norms = [
            Some(&self.before_attention),
            self.after_attention.as_ref(),
            Some(&self.before_mlp),
            self.after_mlp.as_ref(),
        ];
        let of_heads: Vec<&Norm> = match &self.attention.norms {
            HeadNorms::None => Vec::new(),
            HeadNorms::Whole(norms) => norms.iter().collect(),
            HeadNorms::PerHead(norms) => norms.iter().collect(),
        };
        let linears = self.attention.qkv.iter().chain([&self.attention.output, &self.mlp.first, &self.mlp.last]);
        let linears = linears.chain(&self.mlp.up).flat_map(Linear::tensors);
        norms.into_iter().flatten().chain(of_heads).flat_map(Norm::tensors).chain(linears).collect()
    }
}

impl Tower {
    /// Returns the required tensors, without vectors of the hidden size.
    pub fn tensors(&self) -> Vec<RequiredTensor> {
        let Patches { matrix, shape, frames, .. } = &self.patches;
        let weights = [format!("{}.weight", matrix.name)].into_iter().chain(frames.iter().cloned());
        let patches = weights.map(|name| (name, shape.clone())).chain(matrix.others());
        let table = match &self.positions {
            Positions::None => None,
            Positions::Table { name, shape, .. } => Some((name.clone(), shape.clone())),
            Positions::Axes { name, size } => Some((name.clone(), vec![2, *size, self.hidden])),
            Positions::Interpolated { name, side } => Some((name.clone(), vec![side * side, self.hidden])),
        };
        let norms = self.input_norm.iter().chain(&self.final_norm).flat_map(Norm::tensors);
        let heads = self.deep.iter().map(|(_, head)| head).chain([&self.head]).flat_map(Head::tensors);
        let blocks = self.blocks.iter().flat_map(Block::tensors);
        let vectors = self.class_token.iter().chain(&self.own_row).cloned();
        patches.chain(vectors).chain(table).chain(norms).chain(heads).chain(blocks).collect()
    }
}
