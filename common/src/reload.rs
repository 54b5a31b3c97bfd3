//! Values that are built from files and rebuilt when the files change.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinHandle;

use crate::status::chain;

/// The time between two checks of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The most bytes of a file: more than 100,000 tokens.
const MAX_BYTES: u64 = 16 << 20;
/// The most time of a check. A file system that hangs must not stop later checks.
const MAX_CHECK_TIME: Duration = Duration::from_secs(10);
/// The most checks that may hang at once.
const MAX_HANGING: usize = 4;

/// Why a value could not be built.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A file that was read.
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
}

impl SourceFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or has more than [`MAX_BYTES`].
    fn read(path: &Path) -> Result<Self, Cause> {
        let file = File::open(path).map_err(|error| named(path, error))?;
        let length = file.metadata().map_err(|error| named(path, error))?.len();
        let mut content = Vec::new();
        if length <= MAX_BYTES {
            file.take(MAX_BYTES + 1).read_to_end(&mut content).map_err(|error| named(path, error))?;
        }
        if length.max(content.len() as u64) > MAX_BYTES {
            return Err(named(path, format!("the file has more than {MAX_BYTES} bytes")));
        }
        Ok(Self { path: path.to_owned(), content })
    }

    /// Reads a file that is read more than once. A pipe has its content once.
    ///
    /// # Errors
    /// As [`read`](Self::read), and it is no regular file.
    pub(crate) fn read_again(path: &Path) -> Result<Self, Cause> {
        let metadata = fs::metadata(path).map_err(|error| named(path, error))?;
        if !metadata.is_file() {
            return Err(named(path, "not a regular file"));
        }
        Self::read(path)
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
        let files = read_at_start(&paths)?;
        let current = ArcSwap::from_pointee(build(&files)?);
        let reloaded = Arc::new(Self { paths, build, current });
        tokio::spawn(follow(Arc::downgrade(&reloaded), digests(&files)));
        Ok(reloaded)
    }

    /// Returns the current value.
    pub(crate) fn get(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Rebuilds the value if the files' digests differ from those of the last check. Does nothing if a later check
    /// has ended first.
    fn check(&self, number: u64, last: &Mutex<Check>) {
        let files = match read(&self.paths, SourceFile::read_again) {
            Ok(files) => files,
            Err(error) => return tracing::error!(%error, "reload failed; keeping the previous version"),
        };
        let mut last = last.lock();
        if last.number > number {
            return;
        }
        let digests = digests(&files);
        let is_changed = last.digests != digests;
        *last = Check { number, digests };
        if !is_changed {
            return;
        }
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
}

/// A check of the files.
struct Check {
    number: u64,
    digests: Vec<[u8; 32]>,
}

/// Checks the files at each interval. A check that takes too long is left behind, and the next one reads them.
async fn follow<T: Send + Sync + 'static>(reloaded: Weak<Reloaded<T>>, digests: Vec<[u8; 32]>) {
    let last = Arc::new(Mutex::new(Check { number: 0, digests }));
    let mut hanging: Vec<JoinHandle<()>> = Vec::new();
    for number in 1.. {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Some(reloaded) = reloaded.upgrade() else { return };
        hanging.retain(|check| !check.is_finished());
        if hanging.len() < MAX_HANGING {
            let (files, last) = (reloaded.paths.clone(), Arc::clone(&last));
            let mut check = tokio::task::spawn_blocking(move || reloaded.check(number, &last));
            match tokio::time::timeout(MAX_CHECK_TIME, &mut check).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "reload failed; keeping the previous version"),
                Err(_) => {
                    tracing::error!(
                        ?files,
                        "files cannot be read within {MAX_CHECK_TIME:?}; keeping the previous version"
                    );
                    hanging.push(check);
                }
            }
        }
    }
}

/// Digests detect a change without keeping the files' secrets.
fn digests(files: &[SourceFile]) -> Vec<[u8; 32]> {
    files.iter().map(|file| Sha256::digest(&file.content).into()).collect()
}

/// Reads files within [`MAX_CHECK_TIME`]. One may be a pipe, whose writer may not come.
fn read_at_start(paths: &[PathBuf]) -> Result<Vec<SourceFile>, Cause> {
    let (sender, result) = mpsc::channel();
    let files = paths.to_vec();
    thread::spawn(move || sender.send(read(&files, SourceFile::read)));
    result.recv_timeout(MAX_CHECK_TIME).unwrap_or_else(|_| {
        let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        Err(format!("{}: cannot be read within {MAX_CHECK_TIME:?}", names.join(", ")).into())
    })
}

fn read(paths: &[PathBuf], read: fn(&Path) -> Result<SourceFile, Cause>) -> Result<Vec<SourceFile>, Cause> {
    paths.iter().map(|path| read(path)).collect()
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
