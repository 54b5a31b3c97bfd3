//! Values that are built from files and rebuilt when the files change.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};

use crate::status::chain;

/// The time between two checks of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Why a value could not be built.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A file that was read.
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
}

impl SourceFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Cause> {
        let content = fs::read(path).map_err(|error| named(path, error))?;
        Ok(Self { path: path.to_owned(), content })
    }

    /// Returns an error that names the file.
    pub(crate) fn error(&self, problem: impl Display) -> Cause {
        named(&self.path, problem)
    }
}

/// Builds a value from files, in the order of their paths. Its errors name the file.
type Build<T> = fn(&[SourceFile]) -> Result<T, Cause>;

/// A value built from files. If a reload fails, the previous value stays in use.
pub(crate) struct Reloaded<T> {
    paths: Vec<PathBuf>,
    build: Build<T>,
    current: ArcSwap<T>,
}

impl<T: Send + Sync + 'static> Reloaded<T> {
    /// Reads the files now, and checks them every five seconds as long as the value is in use.
    pub(crate) fn watch(paths: Vec<PathBuf>, build: Build<T>) -> Result<Arc<Self>, Cause> {
        let files = read(&paths)?;
        let current = ArcSwap::from_pointee(build(&files)?);
        let reloaded = Arc::new(Self { paths, build, current });
        tokio::spawn(follow(Arc::downgrade(&reloaded), digests(&files)));
        Ok(reloaded)
    }

    /// Returns the current value.
    pub(crate) fn get(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Rebuilds the value if the files' digests differ from `previous`. Returns the digests for the
    /// next check.
    fn check(&self, previous: Vec<[u8; 32]>) -> Vec<[u8; 32]> {
        let files = match read(&self.paths) {
            Ok(files) => files,
            Err(error) => {
                tracing::error!(%error, "reload failed; keeping the previous version");
                return previous;
            }
        };
        let digests = digests(&files);
        if digests != previous {
            match (self.build)(&files) {
                Ok(value) => {
                    self.current.store(Arc::new(value));
                    tracing::info!(files = ?self.paths, "files reloaded");
                }
                Err(error) => {
                    let error = chain(&*error);
                    tracing::error!(error, "reload failed; keeping the previous version");
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
fn digests(files: &[SourceFile]) -> Vec<[u8; 32]> {
    files.iter().map(|file| Sha256::digest(&file.content).into()).collect()
}

fn read(paths: &[PathBuf]) -> Result<Vec<SourceFile>, Cause> {
    paths.iter().map(|path| SourceFile::read(path)).collect()
}

/// Returns an error that names a file.
pub(crate) fn named(path: &Path, problem: impl Display) -> Cause {
    format!("{}: {problem}", path.display()).into()
}

impl<T> std::fmt::Debug for Reloaded<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloaded").field("paths", &self.paths).finish_non_exhaustive()
    }
}
