//! Permits of a limited resource, such as calls or bytes. No single caller can hold all.

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

impl Held {
    fn take(&mut self, caller: &Arc<str>, count: usize) {
        self.total += count;
        *self.by_caller.entry(Arc::clone(caller)).or_default() += count;
    }
}

/// A number of permits, usually one. Dropping it frees them.
#[derive(Debug)]
pub struct Permit {
    permits: Permits,
    caller: Arc<str>,
    count: usize,
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
        self.acquire_many(caller, 1)
    }

    /// Takes `count` permits.
    ///
    /// # Errors
    /// Too few are left for this caller.
    pub fn acquire_many(&self, caller: &Arc<str>, count: usize) -> Result<Permit, Exhausted> {
        let mut permit = self.none(caller);
        permit.add(count)?;
        Ok(permit)
    }

    /// Returns a permit for nothing, to which more can be added.
    #[must_use]
    pub fn none(&self, caller: &Arc<str>) -> Permit {
        Permit { permits: self.clone(), caller: Arc::clone(caller), count: 0 }
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

impl Permit {
    /// Takes `count` more permits.
    ///
    /// # Errors
    /// Too few are left for this caller. The permits taken before are kept.
    pub fn add(&mut self, count: usize) -> Result<(), Exhausted> {
        let Shared { limit, limit_per_caller, held } = &*self.permits.0;
        let mut held = held.lock();
        let of_caller = held.by_caller.get(&self.caller).copied().unwrap_or_default();
        if held.total.saturating_add(count) > *limit {
            return Err(Exhausted::All);
        }
        if of_caller.saturating_add(count) > *limit_per_caller {
            return Err(Exhausted::OfCaller);
        }
        held.take(&self.caller, count);
        self.count += count;
        Ok(())
    }

    /// Takes `count` more permits, also beyond the limits.
    pub fn force(&mut self, count: usize) {
        self.permits.0.held.lock().take(&self.caller, count);
        self.count += count;
    }

    /// Returns the number of permits.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Frees `count` of the permits.
    ///
    /// # Panics
    /// There are fewer.
    pub fn free(&mut self, count: usize) {
        self.count -= count;
        let mut held = self.permits.0.held.lock();
        held.total -= count;
        if let Some(of_caller) = held.by_caller.get_mut(&self.caller) {
            *of_caller -= count;
            if *of_caller == 0 {
                held.by_caller.remove(&self.caller);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.free(self.count);
    }
}
