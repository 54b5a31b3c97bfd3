//! Arithmetic of language models on the CPU: packed weights, products of matrices, attention, and what lies between them.
//!
//! # How a step is computed
//! [`Kernels`] is a thread team at one [`IsaLevel`] of instructions; all that works on many numbers is a method of it. Nothing is
//! global. With M tokens, of all sequences together, in rows one behind the other (`examples/step.rs` is a whole decoder):
//!
//! 1. Once, at load: [`Kernels::pack`] makes a [`Matrix`] of each weight, from a file's bytes ([`Rows`]), kept as it is or
//!    made smaller ([`Target`]). Fused projections are packed in parts, since rows lie one behind the other. [`KvStore::new`]
//!    reserves memory for keys and values in blocks of [`POSITIONS`]; the caller hands out blocks.
//! 2. Once per step: [`Kernels::embed`], and [`Angles::fill`] with the tokens' positions.
//! 3. Per layer: [`Kernels::norm`]; [`Kernels::quantize`] if one of the matrices [needs integers](Format::needs_integers);
//!    [`Kernels::multiply`] with queries, keys and values as three [`Product`]s of one [`Input`]; [`Kernels::rotate`] for queries
//!    and for keys (their norms included); [`Kernels::write`]; [`Kernels::attend`]; quantize and multiply with [`Epilogue::Add`]
//!    onto the residual stream. Then norm, quantize, multiply with [`Layer::Gated`], quantize, multiply with [`Epilogue::Add`].
//!    Where a norm follows a product: [`Epilogue::Store`], then [`Kernels::add_norm`]. Experts: an input of the tokens' rows that an
//!    expert got, and [`Epilogue::Scatter`] back to their places.
//! 4. For the rows whose logits are wanted: norm, quantize, multiply; then [`vocab`].
//!
//! # What holds
//! - A token's numbers depend on that token and its sequence alone, to the bit: not on the tokens beside it, on how a prompt is
//!   cut, on the number of threads, or on the level.
//! - Infinity and NaN, from weights or activations, stay within the rows that they belong to, and are not hidden.
//! - Every method checks all shapes before it writes, and answers [`Error`]; no content of a file leads to a panic.
//! - A processor's instructions are used only after they were found: a [`IsaLevel`] cannot be had otherwise.
//! - `unsafe` is in `buffer`, `disjoint`, `pool` and `isa`, where tasks take their parts of a shared output, and where the unit for
//!   tiles is set up.

#![allow(unsafe_code)] // vector instructions, and threads that write parts of one slice; every block says why it is sound

mod act;
mod attention;
mod buffer;
mod disjoint;
mod element;
mod embed;
mod error;
mod half;
mod isa;
mod kernels;
mod kv;
mod matmul;
mod norm;
mod pack;
mod pool;
mod quantize;
mod rope;
pub mod vocab;

pub use act::Activation;
pub use attention::{Attention, Scratch};
pub use error::Error;
pub use isa::IsaLevel;
pub use kernels::Kernels;
pub use kv::{KeysValues, KvFormat, KvShape, KvStore, POSITIONS, Run};
pub use matmul::{Epilogue, Input, Layer, Linear, Product};
pub use norm::Norm;
pub use pack::{BlockFormat, Format, Matrix, RowOrder, Rows, Target};
pub use pool::Team;
pub use quantize::Int8Rows;
pub use rope::{Angles, Heads};
