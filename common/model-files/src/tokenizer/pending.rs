//! The fast encoder, which takes longer to build than the classic one: built in the background, from the first use on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use parking_lot::Mutex;

use super::classic::Classic;
use super::fast::Fast;

/// One at a time in a process: many models may be loaded at once, and building takes a core and much memory.
static BUILDING: Mutex<()> = Mutex::new(());

/// The fast encoder, now or later.
pub(super) struct Pending {
    shared: Arc<Shared>,
    is_begun: AtomicBool,
}

struct Shared {
    /// `None` where it cannot be made to agree with the classic encoder.
    built: OnceLock<Option<Fast>>,
    cache_bytes: AtomicU64,
}

impl Pending {
    pub(super) fn new(cache_bytes: u64) -> Self {
        let shared = Shared { built: OnceLock::new(), cache_bytes: AtomicU64::new(cache_bytes) };
        Self { shared: Arc::new(shared), is_begun: AtomicBool::new(false) }
    }

    /// The encoder, if it has been built. Begins to build it.
    pub(super) fn get(&self, classic: &Arc<Classic>) -> Option<&Fast> {
        self.begin(classic);
        self.shared.built.get().and_then(Option::as_ref)
    }

    /// Waits until it has been built, or cannot be.
    pub(super) fn wait(&self, classic: &Arc<Classic>) -> Option<&Fast> {
        self.begin(classic);
        self.shared.built.wait().as_ref()
    }

    pub(super) fn set_cache_bytes(&self, bytes: u64) {
        self.shared.cache_bytes.store(bytes, Ordering::Relaxed);
        if let Some(Some(fast)) = self.shared.built.get() {
            fast.set_cache_bytes(bytes);
        }
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

/// Builds it when it is its turn, unless the tokenizer is no more by then.
fn build(shared: &Weak<Shared>, classic: &Weak<Classic>) {
    let _one = BUILDING.lock();
    if let (Some(shared), Some(classic)) = (shared.upgrade(), classic.upgrade()) {
        shared.build(classic);
    }
}

impl Shared {
    fn build(&self, classic: Arc<Classic>) {
        let bytes = self.cache_bytes.load(Ordering::Relaxed);
        let built = catch_unwind(AssertUnwindSafe(|| Fast::of(classic, bytes)));
        let built = built.unwrap_or_else(|_| Err("the library fails on it".to_owned()));
        let fast = built.inspect_err(|reason| tracing::debug!(reason, "text is encoded the slow way")).ok();
        // The setting may have changed meanwhile.
        if let Some(fast) = self.built.get_or_init(|| fast) {
            fast.set_cache_bytes(self.cache_bytes.load(Ordering::Relaxed));
        }
    }
}
