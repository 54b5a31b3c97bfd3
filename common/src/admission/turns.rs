//! Work that waits in turn: each caller's oldest work, one caller after the other.

use std::collections::VecDeque;
use std::sync::Arc;

/// The waiting work of each caller. The next turn is the first caller's.
#[derive(Debug)]
pub struct Turns<W>(VecDeque<(Arc<str>, VecDeque<W>)>);

impl<W> Default for Turns<W> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<W> Turns<W> {
    /// Adds work behind the caller's other work.
    pub fn push(&mut self, caller: &Arc<str>, work: W) {
        match self.0.iter_mut().find(|(waiting, _)| waiting == caller) {
            Some((_, queue)) => queue.push_back(work),
            None => self.0.push_back((Arc::clone(caller), VecDeque::from([work]))),
        }
    }

    /// Removes the work whose turn it is. None if none waits.
    pub fn pop(&mut self) -> Option<W> {
        self.pop_of(|_| true).map(|(_, work)| work)
    }

    /// Removes the work whose turn it is among that of callers that `may` have a turn, with its caller.
    pub fn pop_of(&mut self, may: impl Fn(&Arc<str>) -> bool) -> Option<(Arc<str>, W)> {
        let place = self.0.iter().position(|(caller, _)| may(caller))?;
        let (caller, mut queue) = self.0.remove(place)?;
        let next = queue.pop_front()?;
        if !queue.is_empty() {
            self.0.push_back((Arc::clone(&caller), queue));
        }
        Some((caller, next))
    }
}
