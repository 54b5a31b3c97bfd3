//! Outputs that must follow a grammar: which tokens may come next.
//!
//! A grammar is compiled on a separate thread while its request is checked. While the model
//! computes a step, other threads compute which tokens may follow ([`Constraint`]), so that the
//! engine rarely waits. It waits for a short time only: an output whose tokens are not known by then
//! takes no part in the next step. These threads serve the callers in turns.
//!
//! The cost of a grammar is bounded: its text, its compiled size, the time to compile it ([`trial`]),
//! and the work for each token. The number of grammars that are compiled at the same time is bounded
//! too. The others wait in turns of their callers, and each caller may have a part of the queue only.

mod compile;
mod constraint;
mod jobs;
mod lark;
mod library;
mod schema;
mod source;
pub mod trial;
mod vocabulary;

pub use compile::Grammars;
pub use compile::MAX_COMPILING;
pub use constraint::{Compiled, Constraint, Followed, Follower, Mask, MaskError};
pub use source::{Grammar, GrammarKind, Whitespace};
