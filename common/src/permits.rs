//! Permits of a limited resource, of which no single caller can hold all.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// One permit of this many is kept back for other callers.
const RESERVE: usize = 4;

/// The permits. Clones share them.
#[derive(Debug, Clone)]
pub struct Permits(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    limit_per_caller: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    total: usize,
    by_caller: HashMap<Arc<str>, usize>,
}

/// A permit. Dropping it frees the permit.
#[derive(Debug)]
pub struct Permit {
    permits: Permits,
    caller: Arc<str>,
}

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// All callers together hold every permit.
    All,
    /// The caller holds as many as one caller may.
    OfCaller,
}

impl Permits {
    /// Creates `limit` permits, of which a quarter is kept back from any one caller.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self::with_caller_limit(limit, limit - limit / RESERVE)
    }

    /// Creates `limit` permits, of which one caller may hold `limit_per_caller`.
    #[must_use]
    pub fn with_caller_limit(limit: usize, limit_per_caller: usize) -> Self {
        Self(Arc::new(Shared { limit, limit_per_caller, held: Mutex::default() }))
    }

    /// Takes a permit.
    ///
    /// # Errors
    /// There is none for this caller.
    pub fn acquire(&self, caller: &Arc<str>) -> Result<Permit, Exhausted> {
        let mut held = self.0.held.lock();
        if held.total >= self.0.limit {
            return Err(Exhausted::All);
        }
        if held.by_caller.get(caller).is_some_and(|count| *count >= self.0.limit_per_caller) {
            return Err(Exhausted::OfCaller);
        }
        held.total += 1;
        *held.by_caller.entry(Arc::clone(caller)).or_default() += 1;
        Ok(Permit { permits: self.clone(), caller: Arc::clone(caller) })
    }

    /// Returns the number of permits in use.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.held.lock().total
    }

    /// Returns the number of all permits.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Returns the number of permits that one caller may hold.
    #[must_use]
    pub fn limit_per_caller(&self) -> usize {
        self.0.limit_per_caller
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.permits.0.held.lock();
        held.total -= 1;
        if let Some(count) = held.by_caller.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                held.by_caller.remove(&self.caller);
            }
        }
    }
}
