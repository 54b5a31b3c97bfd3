//! Turns for long texts in the classic encoder, which needs up to 430 times the size of a part in memory.
//! However many cores and callers there are, the parts that are encoded concurrently are bounded.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::cancel;
use super::error::TokenizerError;

/// The size from which a text waits for its turn.
const LONG_BYTES: usize = 8 << 10;
/// The bytes of parts that are encoded concurrently. They take up to 220 MiB of memory.
const MAX_BYTES: usize = 512 << 10;
/// The time between two checks of cancellation.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The turns of the process.
static TURNS: Turns = Turns { bytes: Mutex::new(0), freed: Condvar::new() };

struct Turns {
    /// The bytes of the long texts that are being encoded.
    bytes: Mutex<usize>,
    freed: Condvar,
}

/// The turn of one text.
pub(super) struct Turn {
    turns: &'static Turns,
    bytes: usize,
}

impl Turn {
    /// Waits until a text of this size may be encoded. A short text may be encoded at once.
    ///
    /// # Errors
    /// [`TokenizerError::Cancelled`].
    pub(super) fn of(bytes: usize) -> Result<Self, TokenizerError> {
        TURNS.turn(bytes)
    }
}

impl Turns {
    fn turn(&'static self, bytes: usize) -> Result<Turn, TokenizerError> {
        let bytes = if bytes < LONG_BYTES { 0 } else { bytes };
        let mut taken = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        while bytes > 0 && *taken > 0 && *taken + bytes > MAX_BYTES {
            cancel::check()?;
            let waited = self.freed.wait_timeout(taken, CHECK_INTERVAL);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += bytes;
        Ok(Turn { turns: self, bytes })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.turns.bytes.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
            self.turns.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::cancel::CancelScope;

    fn turns() -> &'static Turns {
        Box::leak(Box::new(Turns { bytes: Mutex::new(0), freed: Condvar::new() }))
    }

    #[test]
    fn long_texts_wait_for_each_other() {
        let turns = turns();
        let first = turns.turn(MAX_BYTES).expect("a turn");
        let _short = turns.turn(LONG_BYTES - 1).expect("a turn at once");
        let (sender, done) = mpsc::channel();
        let second = thread::spawn(move || {
            let _turn = turns.turn(LONG_BYTES).expect("a turn");
            sender.send(()).expect("a receiver");
        });
        assert!(done.recv_timeout(Duration::from_millis(100)).is_err(), "the second text did not wait");
        drop(first);
        done.recv_timeout(Duration::from_secs(60)).expect("the second text's turn");
        second.join().expect("no panic");
    }

    #[test]
    fn a_text_larger_than_all_turns_waits_for_none_but_others() {
        let turns = turns();
        drop(turns.turn(MAX_BYTES * 2).expect("a turn"));
        assert_eq!(*turns.bytes.lock().expect("the bytes"), 0);
    }

    #[test]
    fn a_text_without_a_caller_waits_no_longer() {
        let turns = turns();
        let _first = turns.turn(MAX_BYTES).expect("a turn");
        let cancelled = CancellationToken::new();
        let _scope = CancelScope::start(cancelled.clone());
        cancelled.cancel();
        assert!(matches!(turns.turn(LONG_BYTES), Err(TokenizerError::Cancelled)));
    }
}
