//! Builds the fast encoder in the background when it is first used. Its build takes longer than the
//! classic encoder's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use parking_lot::Mutex;

use super::cache::Cache;
use super::classic::Classic;
use super::fast::Fast;

/// Limits a process to one build at a time: each needs a core and much memory, and many models may
/// be loaded at once.
static BUILDING: Mutex<()> = Mutex::new(());

/// The fast encoder, once it is built.
pub(super) struct Pending {
    shared: Arc<Shared>,
    is_begun: AtomicBool,
}

struct Shared {
    /// None if the build failed, or if its ids differ from the classic encoder's.
    built: OnceLock<Option<Fast>>,
    cache: Arc<Cache>,
}

impl Pending {
    pub(super) fn new() -> Self {
        let shared = Shared { built: OnceLock::new(), cache: Arc::new(Cache::new()) };
        Self { shared: Arc::new(shared), is_begun: AtomicBool::new(false) }
    }

    /// Returns the encoder if it is built. The first call starts the build.
    pub(super) fn get(&self, classic: &Arc<Classic>) -> Option<&Fast> {
        self.begin(classic);
        self.shared.built.get().and_then(Option::as_ref)
    }

    /// Waits until the build succeeds or fails.
    pub(super) fn wait(&self, classic: &Arc<Classic>) -> Option<&Fast> {
        self.begin(classic);
        self.shared.built.wait().as_ref()
    }

    pub(super) fn set_cache_bytes(&self, bytes: u64) {
        self.shared.cache.set_bytes(bytes);
    }

    fn begin(&self, classic: &Arc<Classic>) {
        if self.is_begun.load(Ordering::Relaxed) || self.is_begun.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shared, classic) = (Arc::downgrade(&self.shared), Arc::downgrade(classic));
        let thread = thread::Builder::new().name("tokenizer".to_owned());
        if thread.spawn(move || build(&shared, &classic)).is_err() {
            let _ = self.shared.built.set(None);
        }
    }
}

/// Builds the encoder after the previous build has ended. Does nothing if the tokenizer was
/// dropped.
fn build(shared: &Weak<Shared>, classic: &Weak<Classic>) {
    let _one = BUILDING.lock();
    if let (Some(shared), Some(classic)) = (shared.upgrade(), classic.upgrade()) {
        shared.build(classic);
    }
}

impl Shared {
    fn build(&self, classic: Arc<Classic>) {
        let cache = Arc::clone(&self.cache);
        let built = catch_unwind(AssertUnwindSafe(|| Fast::of(classic, cache)));
        let built = built.unwrap_or_else(|_| Err("the library panicked".to_owned()));
        let fast = built
            .inspect_err(|reason| tracing::debug!(reason, "fast encoder not available; using the classic one"))
            .ok();
        let _ = self.built.set(fast);
    }
}
