//! The user's lines, read in a separate thread.

use std::io::{self, BufRead, IsTerminal};
use std::thread;

use tokio::sync::mpsc;

/// Lines of stdin.
#[derive(Debug)]
pub(crate) struct Input {
    lines: mpsc::Receiver<io::Result<String>>,
    pub(crate) is_terminal: bool,
}

impl Input {
    /// Starts a thread that reads: a read from stdin cannot be cancelled, and must not delay the
    /// exit.
    pub(crate) fn open() -> Self {
        let (send, lines) = mpsc::channel(1);
        thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                if send.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        Self { lines, is_terminal: io::stdin().is_terminal() }
    }

    /// Returns the next line that is not blank, or nothing at the end and at `/exit`.
    pub(crate) async fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            if self.is_terminal {
                eprint!("> ");
            }
            let Some(line) = self.lines.recv().await.transpose()? else { return Ok(None) };
            match line.trim() {
                "" => {}
                "/exit" => return Ok(None),
                text => return Ok(Some(text.to_owned())),
            }
        }
    }
}
