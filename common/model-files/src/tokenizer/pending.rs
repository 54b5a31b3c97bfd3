//! Builds the fast encoder in the background when it is first used, or on the thread that cannot do
//! without it. Its build takes longer than the classic encoder's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::thread;

use super::cache::Cache;
use super::classic::Classic;
use super::fast::Fast;

/// The thread that builds one encoder after the other: each needs a core and much memory, and many
/// models may be loaded at once. A thread for each would leave its part of the allocator's memory
/// behind. None if the thread cannot be started.
static BUILDER: LazyLock<Option<Sender<Build>>> = LazyLock::new(|| {
    let (sender, builds) = mpsc::channel::<Build>();
    let main = move || builds.into_iter().for_each(Build::run);
    thread::Builder::new().name("tokenizer".to_owned()).spawn(main).ok().map(|_| sender)
});

/// An encoder to build, unless its tokenizer is dropped before.
struct Build {
    shared: Weak<Shared>,
    classic: Weak<Classic>,
}

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

    /// Returns the encoder. Builds it on this thread, unless it is built or another thread builds it.
    pub(super) fn wait(&self, classic: &Arc<Classic>) -> Option<&Fast> {
        self.is_begun.store(true, Ordering::Relaxed);
        self.shared.build(classic)
    }

    pub(super) fn set_cache_bytes(&self, bytes: u64) {
        self.shared.cache.set_bytes(bytes);
    }

    fn begin(&self, classic: &Arc<Classic>) {
        if self.is_begun.load(Ordering::Relaxed) || self.is_begun.swap(true, Ordering::Relaxed) {
            return;
        }
        let build = Build { shared: Arc::downgrade(&self.shared), classic: Arc::downgrade(classic) };
        if BUILDER.as_ref().is_none_or(|builder| builder.send(build).is_err()) {
            let _ = self.shared.built.set(None);
        }
    }
}

impl Build {
    fn run(self) {
        if let (Some(shared), Some(classic)) = (self.shared.upgrade(), self.classic.upgrade()) {
            shared.build(&classic);
        }
    }
}

impl Shared {
    /// Returns the encoder, which is built if it is not.
    fn build(&self, classic: &Arc<Classic>) -> Option<&Fast> {
        let build = || {
            let built = catch_unwind(AssertUnwindSafe(|| Fast::of(Arc::clone(classic), Arc::clone(&self.cache))));
            let built = built.unwrap_or_else(|_| Err("the library panicked".to_owned()));
            built.inspect_err(|reason| tracing::debug!(reason, "fast encoder not available; using the classic one"))
        };
        self.built.get_or_init(|| build().ok()).as_ref()
    }
}
