//! Who may use a limited resource, and who waits for it.
//!
//! | primitive | a caller beyond its share | used for |
//! |---|---|---|
//! | [`Permits`] | is refused at once | connections, calls, bytes of messages, queues, memory of images |
//! | [`FairQueue`] | waits for its turn | threads that render, prepare, compile grammars or fetch images |
//! | [`Turns`] | waits: the order of a [`FairQueue`], and of jobs without places | steps of grammars |

mod fair_queue;
mod permits;
mod turns;

pub use fair_queue::{FairQueue, Place};
pub use permits::{Exhausted, Permit, Permits};
pub use turns::Turns;
