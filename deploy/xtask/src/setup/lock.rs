//! The lock of the set-up.

use std::fs::{File, TryLockError};

use anyhow::{Context, Result};

use crate::files::make_folder;
use crate::layout::Layout;

/// Prevents two set-ups at the same time. The lock is released when the file handle is closed, even
/// if the process is killed.
pub(super) fn lock(layout: &Layout) -> Result<File> {
    let folder = layout.tandem();
    make_folder(&folder)?;
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => eprintln!("Another `cargo xtask` is setting up; waiting for it."),
        Err(TryLockError::Error(error)) => return Err(error).context(format!("cannot lock {}", path.display())),
    }
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}
