//! What is made of files, and made again when they change.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;
use std::{fs, io};

use sha2::{Digest as _, Sha256};

use crate::status::chain;

/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(5);

/// Why a value could not be made.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Makes a value of the files' contents, in the order of their paths.
type Make<T> = fn(&[Vec<u8>]) -> Result<T, Cause>;

/// A value made of files. While they cannot be read, or make no sense, the last one that did counts.
pub(crate) struct Reloaded<T> {
    paths: Vec<PathBuf>,
    make: Make<T>,
    current: RwLock<Arc<T>>,
}

impl<T: Send + Sync + 'static> Reloaded<T> {
    /// Reads the files now, and, as long as the value is in use, every five seconds.
    pub(crate) fn watch(paths: Vec<PathBuf>, make: Make<T>) -> Result<Arc<Self>, Cause> {
        let contents = read(&paths)?;
        let current = RwLock::new(Arc::new(make(&contents)?));
        let reloaded = Arc::new(Self { paths, make, current });
        tokio::spawn(follow(Arc::downgrade(&reloaded), digests(&contents)));
        Ok(reloaded)
    }

    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What to compare with next time.
    fn look(&self, before: Vec<[u8; 32]>) -> Vec<[u8; 32]> {
        let contents = match read(&self.paths) {
            Ok(contents) => contents,
            Err(error) => {
                tracing::error!(%error, "not read again, what was read before counts");
                return before;
            }
        };
        let now = digests(&contents);
        if now != before {
            match (self.make)(&contents) {
                Ok(value) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                    tracing::info!(files = ?self.paths, "read again");
                }
                Err(error) => {
                    tracing::error!(files = ?self.paths, "what was read before counts: {}", chain(&*error));
                }
            }
        }
        now
    }
}

async fn follow<T: Send + Sync + 'static>(reloaded: Weak<Reloaded<T>>, mut known: Vec<[u8; 32]>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(reloaded) = reloaded.upgrade() else { return };
        match tokio::task::spawn_blocking(move || reloaded.look(known)).await {
            Ok(now) => known = now,
            Err(_) => return,
        }
    }
}

/// What files held, without their secrets.
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
