//! Copies from pinned memory that a GPU has not finished.

use std::cell::RefCell;
use std::collections::VecDeque;

use tch::Device;

use super::event::Event;
use crate::error::Error;

/// Maximum number of unfinished copies. Each keeps its pinned memory.
const MOST: usize = 4;

/// Copies from pinned memory, in order.
#[derive(Debug, Default)]
pub(crate) struct InFlight(RefCell<VecDeque<Event>>);

impl InFlight {
    /// Adds a copy that was started. If there are too many, waits for the oldest. Has no effect on the CPU.
    pub(crate) fn add(&self, device: Device) -> Result<(), Error> {
        let mut copies = self.0.borrow_mut();
        copies.extend(Event::record(device)?);
        if copies.len() > MOST { copies.pop_front().map_or(Ok(()), Event::wait) } else { Ok(()) }
    }
}
