//! Places for work that waits in turn: each caller's oldest work, one caller after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot::{self, Sender};

/// A number of places. Clones share them.
#[derive(Debug, Clone)]
pub struct FairQueue(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    free: usize,
    /// The waiting work of each caller. The next turn is the first caller's.
    callers: VecDeque<(Arc<str>, VecDeque<Sender<Place>>)>,
}

/// A place. Dropping it gives it to the next in turn.
#[derive(Debug)]
pub struct Place(Option<FairQueue>);

impl FairQueue {
    /// Creates this number of places, at least one.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue { free: places.max(1), callers: VecDeque::new() })))
    }

    /// Waits for a place. Dropping the future leaves the queue.
    pub async fn place(&self, caller: &Arc<str>) -> Place {
        let receiver = {
            let Queue { free, callers } = &mut *self.0.lock();
            if *free > 0 {
                *free -= 1;
                return Place(Some(self.clone()));
            }
            let (sender, receiver) = oneshot::channel();
            match callers.iter_mut().find(|(waiting, _)| waiting == caller) {
                Some((_, senders)) => senders.push_back(sender),
                None => callers.push_back((Arc::clone(caller), VecDeque::from([sender]))),
            }
            receiver
        };
        // The sender is dropped only with the queue, which `self` holds.
        receiver.await.unwrap_or(Place(None))
    }

    /// Gives a place to the next that still waits.
    fn give_back(self) {
        while let Some(next) = self.0.lock().next() {
            match next.send(Place(Some(self.clone()))) {
                Ok(()) => return,
                // It has left the queue. The place must not come back twice.
                Err(mut place) => place.0 = None,
            }
        }
    }
}

impl Queue {
    /// Removes the next that waits, or frees a place if none does.
    fn next(&mut self) -> Option<Sender<Place>> {
        let Some((caller, mut senders)) = self.callers.pop_front() else {
            self.free += 1;
            return None;
        };
        let next = senders.pop_front();
        if !senders.is_empty() {
            self.callers.push_back((caller, senders));
        }
        next
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.give_back();
        }
    }
}
