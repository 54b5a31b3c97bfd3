//! Values that are built from files and rebuilt when the files change.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fs, io};

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};

use crate::status::chain;

/// The time between two checks of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Why a value could not be built.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Builds a value from the files' contents, in the order of their paths.
type Build<T> = fn(&[Vec<u8>]) -> Result<T, Cause>;

/// A value built from files. If a reload fails, the previous value stays in use.
pub(crate) struct Reloaded<T> {
    paths: Vec<PathBuf>,
    build: Build<T>,
    current: ArcSwap<T>,
}

impl<T: Send + Sync + 'static> Reloaded<T> {
    /// Reads the files now, and checks them every five seconds as long as the value is in use.
    pub(crate) fn watch(paths: Vec<PathBuf>, build: Build<T>) -> Result<Arc<Self>, Cause> {
        let contents = read(&paths)?;
        let current = ArcSwap::from_pointee(build(&contents)?);
        let reloaded = Arc::new(Self { paths, build, current });
        tokio::spawn(follow(Arc::downgrade(&reloaded), digests(&contents)));
        Ok(reloaded)
    }

    /// Returns the current value.
    pub(crate) fn get(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Rebuilds the value if the files' digests differ from `previous`. Returns the digests for the
    /// next check.
    fn check(&self, previous: Vec<[u8; 32]>) -> Vec<[u8; 32]> {
        let contents = match read(&self.paths) {
            Ok(contents) => contents,
            Err(error) => {
                tracing::error!(%error, "reload failed; keeping the previous version");
                return previous;
            }
        };
        let digests = digests(&contents);
        if digests != previous {
            match (self.build)(&contents) {
                Ok(value) => {
                    self.current.store(Arc::new(value));
                    tracing::info!(files = ?self.paths, "files reloaded");
                }
                Err(error) => {
                    let error = chain(&*error);
                    tracing::error!(files = ?self.paths, error, "reload failed; keeping the previous version");
                }
            }
        }
        digests
    }
}

async fn follow<T: Send + Sync + 'static>(reloaded: Weak<Reloaded<T>>, mut digests: Vec<[u8; 32]>) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Some(reloaded) = reloaded.upgrade() else { return };
        match tokio::task::spawn_blocking(move || reloaded.check(digests)).await {
            Ok(checked) => digests = checked,
            Err(_) => return,
        }
    }
}

/// Digests detect a change without keeping the files' secrets.
fn digests(contents: &[Vec<u8>]) -> Vec<[u8; 32]> {
    contents.iter().map(|content| Sha256::digest(content).into()).collect()
}

fn read(paths: &[PathBuf]) -> io::Result<Vec<Vec<u8>>> {
    paths.iter().map(|path| fs::read(path).map_err(|error| named(path, &error))).collect()
}

fn named(path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl<T> std::fmt::Debug for Reloaded<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloaded").field("paths", &self.paths).finish_non_exhaustive()
    }
}
