//! The bookkeeping of the KV cache: the blocks of each sequence, and the prefix cache.
//!
//! Only block numbers are kept here; the model owns the memory. A sequence references its blocks.
//! Once all positions of a block are computed, it never changes. It is then found by its content:
//! its tokens, its images and the block before it, back to the start of the prompt. Unreferenced blocks stay
//! cached and are evicted in LRU order.

mod pool;
mod table;

pub use pool::{BlockPool, Content, Digest, ImageSpan, Usage};
pub use table::{BLOCK, BlockId, BlockTable};
