//! The bookkeeping of the KV cache: the blocks of each sequence, and the prefix cache.
//!
//! Only block numbers are kept here; the model owns the memory. A sequence references its blocks. A
//! block has one or more parts of [`BLOCK`] positions. Once all positions of a part are computed, it
//! never changes. It is then found by its content: its tokens, its images and the part before it, back
//! to the start of the prompt. Unreferenced blocks stay cached and are evicted in LRU order.
//!
//! Sequences share whole blocks. If a prompt shares only the first parts of a block, the model copies
//! them.

mod content;
mod pool;
mod table;

pub use content::{Content, Digest, ImageSpan};
pub use pool::{BlockPool, Found, Usage};
pub use table::{BLOCK, BlockCopy, BlockId, BlockTable};
