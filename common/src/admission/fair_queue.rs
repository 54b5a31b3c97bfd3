//! Places for work that waits in turn: each caller's oldest work, one caller after the other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot::{self, Sender};

use super::turns::Turns;

/// A number of places. Clones share them.
#[derive(Debug, Clone)]
pub struct FairQueue(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    free: usize,
    /// The most places of one caller.
    share: usize,
    /// The places of each caller that has some.
    held: HashMap<Arc<str>, usize>,
    waiting: Turns<Sender<Place>>,
}

/// A place of a caller. Dropping it gives it to the next in turn.
#[derive(Debug)]
pub struct Place(Option<(FairQueue, Arc<str>)>);

impl FairQueue {
    /// Creates this number of places, at least one. One caller may hold them all.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self::with_share(places, places)
    }

    /// Creates this number of places, of which one caller may hold `share`; at least one of each.
    #[must_use]
    pub fn with_share(places: usize, share: usize) -> Self {
        let (free, share) = (places.max(1), share.max(1));
        Self(Arc::new(Mutex::new(Queue { free, share, held: HashMap::new(), waiting: Turns::default() })))
    }

    /// Waits for a place. Dropping the future leaves the queue.
    pub async fn place(&self, caller: &Arc<str>) -> Place {
        let receiver = {
            let queue = &mut *self.0.lock();
            if queue.free > 0 && queue.may_hold(caller) {
                queue.free -= 1;
                queue.hold(caller);
                return Place(Some((self.clone(), Arc::clone(caller))));
            }
            let (sender, receiver) = oneshot::channel();
            queue.waiting.push(caller, sender);
            receiver
        };
        // The sender is dropped only with the queue, which `self` holds.
        receiver.await.unwrap_or(Place(None))
    }

    /// Gives a caller's place to the next that still waits.
    fn give_back(self, caller: &Arc<str>) {
        self.0.lock().release(caller);
        loop {
            let next = self.0.lock().next();
            let Some((caller, next)) = next else { return };
            match next.send(Place(Some((self.clone(), Arc::clone(&caller))))) {
                Ok(()) => return,
                // It has left the queue. The place must not come back twice.
                Err(mut place) => place.0 = None,
            }
            self.0.lock().release(&caller);
        }
    }
}

impl Queue {
    fn may_hold(&self, caller: &Arc<str>) -> bool {
        self.held.get(caller).is_none_or(|held| *held < self.share)
    }

    fn hold(&mut self, caller: &Arc<str>) {
        *self.held.entry(Arc::clone(caller)).or_default() += 1;
    }

    fn release(&mut self, caller: &Arc<str>) {
        if let Some(held) = self.held.get_mut(caller) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(caller);
            }
        }
    }

    /// Removes the next that waits and may hold a place, or frees a place if none does.
    fn next(&mut self) -> Option<(Arc<str>, Sender<Place>)> {
        let (held, share) = (&self.held, self.share);
        let next = self.waiting.pop_of(|caller| held.get(caller).is_none_or(|held| *held < share));
        match &next {
            Some((caller, _)) => self.hold(&Arc::clone(caller)),
            None => self.free += 1,
        }
        next
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((queue, caller)) = self.0.take() {
            queue.give_back(&caller);
        }
    }
}
