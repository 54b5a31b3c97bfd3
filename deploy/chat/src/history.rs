//! The file of earlier messages: one per line, with escaped newlines, readable by its owner only.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

/// The most messages that are kept.
pub(crate) const MAX_ENTRIES: usize = 1000;

/// The file of earlier messages.
#[derive(Debug)]
pub(crate) struct History {
    path: PathBuf,
}

impl History {
    pub(crate) fn new(state: &Path) -> Self {
        Self { path: state.join("chat-history") }
    }

    /// Returns the messages, the latest last. A file that has grown is cut to the latest ones.
    pub(crate) fn load(&self) -> io::Result<Vec<String>> {
        let mut file = self.open()?;
        file.lock()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let latest = &lines[lines.len().saturating_sub(MAX_ENTRIES)..];
        if lines.len() > 2 * MAX_ENTRIES {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all((latest.join("\n") + "\n").as_bytes())?;
        }
        Ok(latest.iter().map(|line| unescape(line)).collect())
    }

    /// Adds a message.
    pub(crate) fn append(&self, message: &str) -> io::Result<()> {
        let mut file = self.open()?;
        file.lock()?;
        file.write_all((escape(message) + "\n").as_bytes())
    }

    /// Opens the file. The mode is also set on a file that exists, because it has prompt text.
    fn open(&self) -> io::Result<File> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)?;
        file.set_permissions(PermissionsExt::from_mode(0o600))?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn escape(message: &str) -> String {
    message.replace('\\', r"\\").replace('\n', r"\n")
}

fn unescape(line: &str) -> String {
    let mut chars = line.chars();
    let mut message = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => message.push(chars.next().map_or('\\', |c| if c == 'n' { '\n' } else { c })),
            c => message.push(c),
        }
    }
    message
}
