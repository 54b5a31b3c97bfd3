//! Jobs for worker threads, in turns of the callers.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tandem_common::admission::Turns;

/// The jobs that wait.
pub(super) struct Jobs<J> {
    queue: Mutex<Queue<J>>,
    changed: Condvar,
}

struct Queue<J> {
    waiting: Turns<J>,
    is_closed: bool,
}

impl<J> Default for Jobs<J> {
    fn default() -> Self {
        Self { queue: Mutex::new(Queue { waiting: Turns::default(), is_closed: false }), changed: Condvar::new() }
    }
}

impl<J> Jobs<J> {
    /// Adds a job. It is dropped if the queue is closed.
    pub(super) fn push(&self, caller: &Arc<str>, job: J) {
        let mut queue = self.queue.lock();
        if !queue.is_closed {
            queue.waiting.push(caller, job);
            self.changed.notify_one();
        }
    }

    /// Waits for the next job. None once the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<J> {
        let mut queue = self.queue.lock();
        loop {
            let next = queue.waiting.pop();
            if next.is_some() || queue.is_closed {
                return next;
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Closes the queue.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.changed.notify_all();
    }
}
