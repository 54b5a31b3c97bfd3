//! Model files that are read in parts. They are not mapped into memory, because reading a mapped
//! file that another process shortens ends this process with SIGBUS.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::excerpt::shown;

/// A regular file and its state when its header was read. It is opened again for the first tensor,
/// so that a service that reads headers only keeps no file open.
#[derive(Debug)]
pub(crate) struct SourceFile {
    path: PathBuf,
    state: FileState,
    file: OnceLock<File>,
}

/// The values that show whether a file was replaced or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    length: u64,
    /// Modification time: seconds and nanoseconds.
    modified: (i64, i64),
}

/// A range of bytes in a model file. Reading fails if the file was replaced, shortened or changed
/// after its header was read.
#[derive(Debug, Clone)]
pub struct FileBytes<'a> {
    file: &'a SourceFile,
    range: Range<u64>,
}

impl SourceFile {
    /// Opens a regular file, and calls `read` with it and its length in bytes. Rejects pipes and
    /// devices, which have no end.
    ///
    /// # Errors
    /// The error of the system or of `read`, or the file changes during `read`.
    pub(crate) fn open<T, E>(
        path: &Path,
        failed: impl Fn(io::Error) -> E,
        read: impl FnOnce(&File, u64) -> Result<T, E>,
    ) -> Result<(Self, T), E> {
        if !std::fs::metadata(path).map_err(&failed)?.is_file() {
            return Err(failed(io::Error::other("not a regular file")));
        }
        let file = File::open(path).map_err(&failed)?;
        let state = FileState::of(&file.metadata().map_err(&failed)?);
        let header = read(&file, state.length)?;
        let opened = Self { path: path.to_owned(), state, file: OnceLock::new() };
        opened.check(&file).map_err(failed)?;
        Ok((opened, header))
    }

    /// Returns a range of the file's bytes, which are read later.
    pub(crate) fn bytes(&self, range: Range<u64>) -> FileBytes<'_> {
        FileBytes { file: self, range }
    }

    fn read(&self, range: &Range<u64>) -> io::Result<Vec<u8>> {
        let file = self.opened()?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = file.read_exact_at(&mut bytes, range.start);
        // A file that became shorter is reported as changed.
        self.check(file)?;
        read?;
        Ok(bytes)
    }

    fn opened(&self) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = File::open(&self.path)?;
        self.check(&file)?;
        Ok(self.file.get_or_init(|| file))
    }

    fn check(&self, file: &File) -> io::Result<()> {
        if FileState::of(&file.metadata()?) == self.state {
            return Ok(());
        }
        let problem = "was changed while it was read; replace a model file by renaming a new one";
        Err(io::Error::other(format!("{} {problem}", shown(&self.path))))
    }
}

impl FileState {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl FileBytes<'_> {
    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns a part of the bytes.
    ///
    /// # Panics
    /// Panics if the part is not inside.
    #[must_use]
    pub fn part(&self, part: Range<usize>) -> Self {
        assert!(part.start <= part.end && part.end <= self.len(), "the part is inside");
        let start = self.range.start;
        Self { file: self.file, range: start + part.start as u64..start + part.end as u64 }
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// The file cannot be read, or was replaced, shortened or changed.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        self.file.read(&self.range)
    }
}
