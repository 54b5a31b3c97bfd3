//! A decoder-only transformer as data, independent of the backend that computes it.
//!
//! An architecture describes itself with these types once, when it is loaded. A backend follows the
//! description, and never uses the architecture's name. The computation, for rows `x` of E numbers,
//! one per token:
//!
//! ```text
//! x = embeddings[token] * embed_scale, or the features of an image token
//! inputs = layer inputs of token and x
//! for each layer:
//!     x = x + residual_scale * after_attention(mixer(before_attention(x)))
//!     x = x + residual_scale * after_feed_forward(feed_forward(before_feed_forward(x)))
//!     x = x + norm(output(activation(gate(x)) * inputs[layer]))
//!     x = x * scale
//!     x = x + the deep features of an image token
//! logits = softcap(head(final_norm(x)) * scale)
//! ```
//!
//! Shapes: E hidden size, H query heads, K key/value heads, D head size, F feed-forward size, V
//! vocabulary, P size of a layer's input. Matrices are `[out, in]`.

mod delta_net;
mod parts;
mod rope;

pub use delta_net::{Convolution, Decay, DeltaNet, Grouped, KeyHeads, RowsOf};
use parts::count;
pub use parts::{Activation, Matrix, Norm, RequiredTensor};
pub use rope::{Llama3, LongRope, Rope};

/// A whole model. Tensors are named as transformers names them.
#[derive(Debug, Clone)]
pub struct Decoder {
    /// V.
    pub vocabulary: usize,
    /// E.
    pub hidden: usize,
    /// The most positions of a sequence.
    pub context: usize,
    /// `[V, E]`
    pub embeddings: Matrix,
    /// The factor of embeddings.
    pub embed_scale: f32,
    /// The inputs of the layers in addition to `x`. `None`: there are none.
    pub layer_inputs: Option<LayerInputs>,
    /// The rotary embeddings. Layers refer to them by index.
    pub ropes: Vec<Rope>,
    /// The layers, in the order of computation.
    pub layers: Vec<Layer>,
    /// The norm before the head.
    pub final_norm: Norm,
    /// `[V, E]`. `None`: the embedding table.
    pub head: Option<Matrix>,
    /// From the head's output to logits.
    pub logits: LogitRule,
}

/// A layer: a branch that mixes the tokens of a sequence, and a feed-forward branch.
#[derive(Debug, Clone)]
pub struct Layer {
    /// The first branch.
    pub mixer: Mixer,
    /// The second.
    pub feed_forward: FeedForward,
    /// The norms of both branches.
    pub norms: Norms,
    /// The factor of a branch before it is added.
    pub residual_scale: f32,
    /// The branch of the layer's own input, if the model has such inputs.
    pub input: Option<InputBranch>,
    /// The name of the factor of the layer's output, a tensor of one number.
    pub scale: Option<String>,
}

/// The inputs of all layers for a token: `(table[token] * table_scale + norm(projection(x) *
/// projection_scale)) * scale`, P numbers for each layer.
#[derive(Debug, Clone)]
pub struct LayerInputs {
    /// P.
    pub size: usize,
    /// `[rows, layers * P]`
    pub table: Matrix,
    /// The factor of the table.
    pub table_scale: f32,
    /// The token whose row of the table is used for an image token.
    pub image_token: u32,
    /// `[layers * P, E]`
    pub projection: Matrix,
    /// The factor of the projection.
    pub projection_scale: f32,
    /// The norm of each layer's P projected numbers.
    pub norm: Norm,
    /// The factor of the sum.
    pub scale: f32,
}

/// The branch of a layer's own input: `norm(output(activation(gate(x)) * input))`.
#[derive(Debug, Clone)]
pub struct InputBranch {
    /// `[P, E]`
    pub gate: Matrix,
    /// The activation of the gate.
    pub activation: Activation,
    /// `[E, P]`
    pub output: Matrix,
    /// The norm of the output.
    pub norm: Norm,
}

/// The norms of a layer.
#[derive(Debug, Clone)]
pub struct Norms {
    /// The norm of the mixer's input.
    pub before_attention: Norm,
    /// The norm of the mixer's output.
    pub after_attention: Option<Norm>,
    /// The norm of the feed-forward's input.
    pub before_feed_forward: Norm,
    /// The norm of the feed-forward's output.
    pub after_feed_forward: Option<Norm>,
}

/// The first branch of a layer.
#[derive(Debug, Clone)]
pub enum Mixer {
    /// Attention to the keys and values of earlier tokens.
    Attention(Attention),
    /// A recurrent state instead of keys and values.
    DeltaNet(DeltaNet),
}

/// Grouped-query attention. A query attends to the keys of the same sequence, up to its position or,
/// with `image_blocks`, up to the end of its image.
#[derive(Debug, Clone)]
pub struct Attention {
    /// H, a multiple of K.
    pub heads: usize,
    /// K.
    pub kv_heads: usize,
    /// D.
    pub head_size: usize,
    /// The factor of a product of query and key.
    pub scale: f32,
    /// Bounds scores, after the scale: `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// Position i sees position j if `i - j < window`.
    pub window: Option<usize>,
    /// True if the tokens of one image attend to each other. The window still applies backwards.
    pub image_blocks: bool,
    /// Index in [`Decoder::ropes`] of the rotation of queries and keys. `None`: no rotation.
    pub rope: Option<usize>,
    /// The origin of keys and values.
    pub pairs: Pairs,
    /// Stacked, `[(H + 2K) * D, E]`: queries, keys, values. The part that [`Pairs`] names may be
    /// missing. With gates, the queries are a matrix alone, `[2H * D, E]`: the gate of each head follows its query.
    pub qkv: Vec<Matrix>,
    /// True if the output of each head is multiplied by the sigmoid of its gate.
    pub is_gated: bool,
    /// The norms of each query head and of each key head over its D numbers, before the rotation.
    pub qk_norm: [Option<Norm>; 2],
    /// The epsilon of the norm of each value head, which has no weight. `None`: no norm.
    pub value_epsilon: Option<f32>,
    /// `[E, H * D]`
    pub output: Matrix,
}

/// The origin of a layer's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// The layer computes both.
    Computed,
    /// The layer computes keys. They are the values too, before their norm and rotation.
    KeysAsValues,
    /// The layer uses the keys and values of an earlier layer, which computes them. It computes
    /// queries only.
    Shared(usize),
}

/// The second branch of a layer.
#[derive(Debug, Clone)]
pub enum FeedForward {
    /// One feed-forward for all tokens.
    Gated(Gated),
    /// Several experts, chosen for each token.
    Experts(Experts),
}

/// `down(activation(gate(x)) * up(x))`
#[derive(Debug, Clone)]
pub struct Gated {
    /// F.
    pub size: usize,
    /// The activation of the gate.
    pub activation: Activation,
    /// Stacked, `[2F, E]`: gate, up.
    pub gate_up: Vec<Matrix>,
    /// `[E, F]`
    pub down: Matrix,
}

/// The sum of `per_token` experts, weighted with their shares of the softmax over all experts, and of the shared one.
#[derive(Debug, Clone)]
pub struct Experts {
    /// `[count, E]`
    pub router: Matrix,
    /// The number of experts: at least `per_token`.
    pub count: usize,
    /// The number of experts of a token: the largest shares. Of equal experts, the first is chosen.
    pub per_token: usize,
    /// True if the chosen shares are scaled to a sum of 1.
    pub normalize: bool,
    /// Expert `i`'s tensors are below `path.i`.
    pub path: String,
    /// F of each expert.
    pub size: usize,
    /// The activation of each expert.
    pub activation: Activation,
    /// The expert of all tokens.
    pub shared: Option<SharedExpert>,
}

/// An expert of all tokens: `sigmoid(gate · x) * feed_forward(x)`.
#[derive(Debug, Clone)]
pub struct SharedExpert {
    /// The expert.
    pub feed_forward: Gated,
    /// The module's name of the gate. Its vector is `name.weight`, `[E]`.
    pub gate: String,
}

/// From the head's output to logits.
#[derive(Debug, Clone, Copy)]
pub struct LogitRule {
    /// The factor of logits.
    pub scale: f32,
    /// Bounds logits, after the scale: `cap * tanh(logit / cap)`.
    pub softcap: Option<f32>,
}

impl Decoder {
    /// Returns every required tensor.
    pub fn tensors(&self) -> impl Iterator<Item = RequiredTensor> {
        let whole = self.embeddings.tensors().chain(self.final_norm.tensors());
        let head = self.head.iter().flat_map(Matrix::tensors);
        let inputs = self.layer_inputs.iter().flat_map(LayerInputs::tensors);
        whole.chain(head).chain(inputs).chain(self.layers.iter().flat_map(Layer::tensors))
    }

    /// Returns true if positions have three axes.
    #[must_use]
    pub fn has_axes(&self) -> bool {
        self.ropes.iter().any(|rope| rope.axes.is_some())
    }

    /// Returns the most tokens of a sequence that is not long. `None`: all sequences have the same rotations.
    #[must_use]
    pub fn long_after(&self) -> Option<usize> {
        self.ropes.iter().filter_map(|rope| rope.long.as_ref()).map(|long| long.after).min()
    }

    /// Returns true if the tokens of one image attend to each other in a layer. A chunk then contains
    /// all of them.
    #[must_use]
    pub fn has_image_blocks(&self) -> bool {
        self.attentions().any(|attention| attention.image_blocks)
    }

    /// Returns the number of parameters in all tensors.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        count(self.tensors())
    }

    /// Returns the attention of each layer that has one, in the order of computation.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.layers.iter().filter_map(Layer::attention)
    }

    /// Returns the DeltaNet of each layer that has one, in the order of computation.
    pub fn delta_nets(&self) -> impl Iterator<Item = &DeltaNet> {
        self.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::DeltaNet(delta_net) => Some(delta_net),
            Mixer::Attention(_) => None,
        })
    }

    /// Does the same as [`Self::attentions`].
    pub(super) fn attentions_mut(&mut self) -> impl Iterator<Item = &mut Attention> {
        self.layers.iter_mut().filter_map(Layer::attention_mut)
    }

    /// Returns every norm whose rows are hidden rows, queries or keys.
    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut Norm> {
        let layers = self.layers.iter_mut().flat_map(|Layer { norms, mixer, .. }| {
            let Norms { before_attention, after_attention, before_feed_forward, after_feed_forward } = norms;
            let always = [before_attention, before_feed_forward];
            let sometimes = after_attention.iter_mut().chain(after_feed_forward);
            let qk_norms = match mixer {
                Mixer::Attention(attention) => Some(attention.qk_norm.iter_mut().flatten()),
                Mixer::DeltaNet(_) => None,
            };
            always.into_iter().chain(sometimes).chain(qk_norms.into_iter().flatten())
        });
        layers.chain([&mut self.final_norm])
    }
}

impl Layer {
    /// Returns the attention of the layer, if it has one.
    #[must_use]
    pub fn attention(&self) -> Option<&Attention> {
        match &self.mixer {
            Mixer::Attention(attention) => Some(attention),
            Mixer::DeltaNet(_) => None,
        }
    }

    /// Does the same as [`Self::attention`].
    pub(super) fn attention_mut(&mut self) -> Option<&mut Attention> {
        match &mut self.mixer {
            Mixer::Attention(attention) => Some(attention),
            Mixer::DeltaNet(_) => None,
        }
    }

    /// Returns the number of parameters.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        count(self.tensors())
    }

    fn tensors(&self) -> impl Iterator<Item = RequiredTensor> {
        let Norms { before_attention, after_attention, before_feed_forward, after_feed_forward } = &self.norms;
        let norms =
            [Some(before_attention), after_attention.as_ref(), Some(before_feed_forward), after_feed_forward.as_ref()];
        let norms = norms.into_iter().flatten().flat_map(Norm::tensors);
        let input = self.input.iter().flat_map(InputBranch::tensors);
        let scale = self.scale.iter().map(|name| (name.clone(), vec![1]));
        norms.chain(self.mixer.tensors()).chain(self.feed_forward.tensors()).chain(input).chain(scale)
    }
}

impl LayerInputs {
    fn tensors(&self) -> impl Iterator<Item = RequiredTensor> {
        [&self.table, &self.projection].into_iter().flat_map(Matrix::tensors).chain(self.norm.tensors())
    }
}

impl InputBranch {
    fn tensors(&self) -> impl Iterator<Item = RequiredTensor> {
        [&self.gate, &self.output].into_iter().flat_map(Matrix::tensors).chain(self.norm.tensors())
    }
}

impl Mixer {
    fn tensors(&self) -> Box<dyn Iterator<Item = RequiredTensor> + '_> {
        match self {
            Self::Attention(attention) => Box::new(attention.tensors()),
            Self::DeltaNet(delta_net) => Box::new(delta_net.tensors()),
        }
    }
}

impl Attention {
    fn tensors(&self) -> impl Iterator<Item = RequiredTensor> {
        let norms = self.qk_norm.iter().flatten().flat_map(Norm::tensors);
        norms.chain(self.qkv.iter().chain([&self.output]).flat_map(Matrix::tensors))
    }
}

impl FeedForward {
    fn tensors(&self) -> Box<dyn Iterator<Item = RequiredTensor> + '_> {
        match self {
            Self::Gated(gated) => Box::new(gated.tensors()),
            Self::Experts(experts) => {
                let all = (0..experts.count).flat_map(|i| experts.expert(i).tensors().collect::<Vec<_>>());
                let shared = experts.shared.iter().flat_map(SharedExpert::tensors);
                Box::new(experts.router.tensors().chain(all).chain(shared))
            }
        }
    }
}

impl Gated {
    /// Creates the feed-forward of three matrices below `path`, which most architectures have.
    #[must_use]
    pub fn split(path: &str, hidden: usize, size: usize, activation: Activation, bias: bool) -> Self {
        let matrix = |name, rows, columns| Matrix { bias, ..Matrix::new(format!("{path}.{name}"), rows, columns) };
        Self {
            size,
            activation,
            gate_up: vec![matrix("gate_proj", size, hidden), matrix("up_proj", size, hidden)],
            down: matrix("down_proj", hidden, size),
        }
    }

    fn tensors(&self) -> impl Iterator<Item = RequiredTensor> {
        self.gate_up.iter().chain([&self.down]).flat_map(Matrix::tensors)
    }
}

impl Experts {
    /// Returns one expert.
    #[must_use]
    pub fn expert(&self, index: usize) -> Gated {
        Gated::split(&format!("{}.{index}", self.path), self.router.columns, self.size, self.activation, false)
    }
}

impl SharedExpert {
    fn tensors(&self) -> impl Iterator<Item = RequiredTensor> {
        let gate = (format!("{}.weight", self.gate), vec![self.feed_forward.down.rows]);
        self.feed_forward.tensors().chain([gate])
    }
}
