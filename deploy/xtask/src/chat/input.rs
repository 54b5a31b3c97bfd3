//! The user's lines, read beside the conversation.

use std::io::{self, BufRead, IsTerminal};
use std::thread;

use tokio::sync::mpsc;

/// Lines of stdin.
#[derive(Debug)]
pub(super) struct Input {
    lines: mpsc::Receiver<io::Result<String>>,
    pub(super) is_terminal: bool,
}

impl Input {
    /// A thread of its own reads, because reading stdin cannot be cancelled and must not hold up the end of the program.
    pub(super) fn open() -> Self {
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

    /// The next line that is not blank; nothing at the end or at `/exit`.
    pub(super) async fn next(&mut self) -> io::Result<Option<String>> {
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
