//! The progress of a download that another program makes.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Waits for `child`. Prints a line every few seconds with the size of what `folder` holds so far.
pub(super) fn watch(child: &mut Child, label: &str, folder: &Path) -> io::Result<ExitStatus> {
    let mut reported = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if reported.elapsed() >= REPORT_INTERVAL {
            reported = Instant::now();
            report(label, size(folder));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// A build may show its progress bar on the same terminal line, which is therefore cleared first.
fn report(label: &str, bytes: u64) {
    let clear = if io::stderr().is_terminal() { "\x1b[K" } else { "" };
    eprintln!("{clear}  {label}: {:.1} MB fetched", bytes as f64 / 1e6);
}

/// Bytes of all files below a folder. Files that vanish meanwhile are left out.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { size(&entry.path()) } else { length(&entry.path()) }).sum()
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}
