//! The bookkeeping of the KV cache: the blocks of each sequence, and the prefix cache.
//!
//! Only block numbers are kept here; the model owns the memory. A sequence references its blocks. A
//! block has one or more parts of [`BLOCK`] positions. Once all positions of a part are computed, it
//! never changes. It is then found by its content: its tokens, its images and the part before it, back
//! to the start of the prompt. Unreferenced blocks stay cached and are evicted in LRU order.
//!
//! Sequences share whole blocks. If a prompt shares only the first parts of a block, the model copies
//! them.
//!
//! In a model with recurrent layers, a sequence also has a slot with its state. A state cannot be
//! divided into parts: a prompt shares computed tokens only up to a part after which the state is
//! kept. It is kept after every n-th part, where n is the number of blocks per slot; after the last
//! whole part of a prompt; and where a prompt leaves the prefix that another one has computed.

mod content;
mod pool;
mod states;
mod table;

pub use content::{Content, Digest, ImageSpan};
pub use pool::{BlockPool, CacheSize, Found, Usage};
pub use states::StateUsage;
pub use table::{BLOCK, BlockCopy, BlockId, BlockTable, ChunkStates, StateId, StateSave};
