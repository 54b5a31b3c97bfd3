//! The answer to a request, above every engine: from an engine's tokens to the events of a caller.
//!
//! A request first takes a place in the [`Queue`], which is limited for each caller. The [`Answer`] then goes to
//! the engine, which generates for as long as it has the answer. The answer turns token ids into clean text, ends
//! outputs at stop conditions and limits, and interrupts a request whose caller is gone or reads too slowly, or
//! whose deadline is over. So all of this is equal for every engine.
//!
//! `checked` and `check` are for engines that are not trusted.

mod check;
mod checked;
mod event;
mod metrics;
mod output;
mod progress;
mod queue;
mod sink;
mod state;

pub use check::{Contradiction, TokenCheck};
pub use checked::CheckedAnswer;
pub use event::{Accepted, Delta, Event, FinishReason, Finished, Summary, Timings, Token, TopToken};
pub use progress::RequestProgress;
pub use queue::{Queue, QueueSlot};
pub use state::{Answer, Flow, Interruption};
