//! CPU arithmetic of language models: packed weights, matrix products, attention, and the
//! operations between them.
//!
//! # The kernels of a step
//! [`Kernels`] combines a thread team and an [`IsaLevel`]; every computation on many numbers is a
//! method of it. There is no global state. The tokens of all sequences form one matrix, a row per
//! token (`tests/bench/src/generate/roofline/decoder.rs` is a complete decoder):
//!
//! 1. Once, at load: [`Kernels::pack`] packs each weight into a [`Matrix`]. The source is the bytes
//!    of a file ([`Rows`]), whose format is kept or converted ([`Target`]). Fused projections are
//!    packed in parts, since their rows are contiguous. [`KvStore::new`] reserves the KV cache in
//!    blocks of [`POSITIONS`]; the caller assigns the blocks. [`StateStore::new`] reserves the states
//!    of linear attention in slots, which the caller assigns too.
//! 2. Once per step: [`Kernels::embed`], and [`Angles::fill`] with the tokens' positions.
//! 3. Per layer, attention: [`Kernels::norm`], then [`Kernels::quantize`] if a matrix [needs
//!    integers](Format::needs_integers). [`Kernels::multiply`] follows, with queries, keys and
//!    values as three [`Product`]s of one [`Input`]; for weights of bf16, it rounds its input to bf16
//!    itself. Then follow [`Kernels::rotate`] for queries and for keys, their norms included,
//!    [`Kernels::write`] and [`Kernels::attend`], which multiply in bf16 if the KV cache is
//!    [in bf16](KvFormat::Bf16). Gated attention is multiplied by sigmoids with [`Kernels::gate`]. At
//!    the end: quantize, and multiply with [`Epilogue::Add`] onto the residual stream.
//! 4. Per layer, linear attention (gated DeltaNet) instead of attention: norm, quantize, multiply.
//!    [`Kernels::convolve`] follows for queries, keys and values, and
//!    [`Kernels::normalize_queries_and_keys`]. [`Kernels::gates`] computes the decays and update
//!    rates, [`Kernels::recur`] the outputs, and [`Kernels::norm_gated`] normalizes and gates them. At
//!    the end: quantize, and multiply with [`Epilogue::Add`]. The states are in a [`StateStore`].
//!    [`StateStore::begin`] checks the runs once per step, before the first layer, and
//!    [`StateStep::finish`] sets the positions after the last.
//! 5. Per layer, feed-forward: norm, quantize, multiply with [`Projection::Gated`], quantize, multiply
//!    with [`Epilogue::Add`]. An expert's input holds the rows of its tokens, and
//!    [`Epilogue::Scatter`] adds its outputs to the rows of those tokens.
//! 6. If a norm follows a product: [`Epilogue::Store`], then [`Kernels::add_norm`].
//! 7. For the rows that need logits: norm, quantize, multiply; then [`vocab`].
//!
//! # Invariants
//! - A token's result depends on the token and its sequence only, to the bit. It does not depend on
//!   other tokens, on the chunks of a prompt, on the number of threads, or on the ISA level.
//! - A state of linear attention contains the tokens up to its position, and is read at that position
//!   only. A step that fails leaves its slots without a state.
//! - Infinity and NaN in weights or activations affect only their own rows, and remain visible
//!   there.
//! - Every method checks all shapes before it writes, and returns [`Error`]. No file content causes
//!   a panic.
//! - Instructions are used only after detection: an [`IsaLevel`] that the processor lacks cannot be
//!   constructed.
//! - `unsafe` code is in `buffer`, `disjoint`, `pool` and `isa`, where tasks borrow parts of a
//!   shared output or of states, and where the tile unit is configured.

// Vector instructions, and threads that write parts of one slice. Every block states why it is
// sound.
#![allow(unsafe_code)]
// Arrays of vectors are registers: iterators and closures over them are not always inlined with a
// level's instructions.
#![allow(clippy::needless_range_loop)]

mod act;
mod attention;
mod buffer;
mod clock;
mod convolution;
mod delta;
mod disjoint;
mod element;
mod embed;
mod error;
mod gate;
mod half;
mod isa;
mod kernels;
mod kv;
mod l2;
mod matmul;
mod norm;
mod pack;
mod pool;
mod quantize;
mod rate;
mod rope;
mod rounded;
mod state;
pub mod vocab;

pub use act::Activation;
pub use attention::{Attention, Scratch};
pub use clock::Part as ClockPart;
pub use convolution::{Convolution, by_tap};
pub use delta::{DeltaRule, KeyHeads};
pub use error::Error;
pub use gate::Gates;
pub use isa::IsaLevel;
pub use kernels::Kernels;
pub use kv::{KeysValues, KvFormat, KvRun, KvShape, KvStore, POSITIONS};
pub use matmul::{Epilogue, Input, Linear, Product, Projection};
pub use norm::Norm;
pub use pack::{BlockFormat, Format, Matrix, Rows, Target};
pub use pool::Team;
pub use quantize::Int8Rows;
pub use rate::peak_products;
pub use rope::{Angles, Heads};
pub use state::{StateRun, StateSave, StateShape, StateStep, StateStore};
