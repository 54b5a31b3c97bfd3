//! Facts about a chat template that are found by rendering conversations with known texts.

mod conversations;
mod marks;
mod opening;
mod turn_end;

pub use self::marks::Mark;
pub use self::opening::{Opened, opens};

pub(super) use self::conversations::Prober;
pub(super) use self::marks::MarkReader;
pub(super) use self::opening::{opened, shown};
pub(super) use self::turn_end::{ProbedTurn, probe_turn};
