//! Memory-mapped model files.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// Maps a regular file. Rejects pipes and devices, which have no end.
#[allow(unsafe_code)]
pub(crate) fn map(path: &Path) -> io::Result<Mmap> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = File::open(path)?;
    // SAFETY: the mapping is read-only, and no slice of it outlives it. Like every memory-mapped
    // loader, this requires that a model file is replaced by renaming, and never changed in place,
    // while a service has it open.
    unsafe { Mmap::map(&file) }
}
