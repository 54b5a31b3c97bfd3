//! The user's messages, read in a separate thread.

use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::thread;

use tokio::sync::mpsc;

use crate::editor::{Entry, LineEditor};
use crate::terminal;

/// The source of messages.
#[derive(Debug)]
pub(crate) enum Input {
    Editor(LineEditor),
    Lines(Lines),
}

impl Input {
    /// Opens the line editor on a terminal that can have one, and otherwise the lines of stdin.
    pub(crate) fn open(history: Option<&Path>) -> io::Result<Self> {
        if terminal::can_edit() { LineEditor::start(history).map(Self::Editor) } else { Ok(Self::Lines(Lines::open())) }
    }

    /// Returns true if a person at a terminal types the messages.
    pub(crate) fn is_terminal(&self) -> bool {
        match self {
            Self::Editor(_) => true,
            Self::Lines(lines) => lines.is_terminal,
        }
    }

    /// Returns the next entry that is not blank.
    pub(crate) async fn next(&mut self) -> io::Result<Entry> {
        match self {
            Self::Editor(editor) => editor.next().await,
            Self::Lines(lines) => lines.next().await,
        }
    }
}

/// Lines of stdin.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: mpsc::Receiver<io::Result<String>>,
    is_terminal: bool,
}

impl Lines {
    /// Starts a thread that reads: a read from stdin cannot be cancelled, and must not delay the
    /// exit.
    fn open() -> Self {
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

    async fn next(&mut self) -> io::Result<Entry> {
        loop {
            if self.is_terminal {
                eprint!("> ");
            }
            let Some(line) = self.lines.recv().await.transpose()? else { return Ok(Entry::End) };
            match line.trim() {
                "" => {}
                text => return Ok(Entry::Message(text.to_owned())),
            }
        }
    }
}
