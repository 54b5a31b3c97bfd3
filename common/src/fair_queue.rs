//! Places for work that waits in turn: each caller's oldest work, one caller after the other.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot::{self, Sender};

use crate::turns::Turns;

/// A number of places. Clones share them.
#[derive(Debug, Clone)]
pub struct FairQueue(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    free: usize,
    waiting: Turns<Sender<Place>>,
}

/// A place. Dropping it gives it to the next in turn.
#[derive(Debug)]
pub struct Place(Option<FairQueue>);

impl FairQueue {
    /// Creates this number of places, at least one.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue { free: places.max(1), waiting: Turns::default() })))
    }

    /// Waits for a place. Dropping the future leaves the queue.
    pub async fn place(&self, caller: &Arc<str>) -> Place {
        let receiver = {
            let Queue { free, waiting } = &mut *self.0.lock();
            if *free > 0 {
                *free -= 1;
                return Place(Some(self.clone()));
            }
            let (sender, receiver) = oneshot::channel();
            waiting.push(caller, sender);
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
        let next = self.waiting.pop();
        self.free += usize::from(next.is_none());
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
