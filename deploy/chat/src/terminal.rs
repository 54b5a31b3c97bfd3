//! The user's terminal: its width, and its mode while no line is read.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The width of a terminal that does not state it.
const DEFAULT_WIDTH: usize = 80;
/// Asks the terminal to mark a paste, so that its newlines are no ends of messages.
const PASTE_ON: &str = "\x1b[?2004h";
const PASTE_OFF: &str = "\x1b[?2004l";

/// Returns the columns of the terminal on stdout, as of now.
pub(crate) fn width() -> usize {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => DEFAULT_WIDTH,
    }
}

/// Returns true if a line editor can work: the terminal understands escape sequences, and can be
/// written to.
pub(crate) fn can_edit() -> bool {
    let can_move = std::env::var("TERM").is_ok_and(|term| !["", "dumb", "cons25", "emacs"].contains(&term.as_str()));
    io::stdin().is_terminal() && can_move && (io::stdout().is_terminal() || std::fs::File::open("/dev/tty").is_ok())
}

/// The mode of the terminal while answers are printed. Text that the user types ahead is not echoed
/// into the answer. It waits for the line editor, neither cut at 4,095 bytes nor split. Dropping
/// this restores the terminal.
#[derive(Debug)]
pub(crate) struct QuietMode {
    before: Termios,
}

impl QuietMode {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        let this = Self { before };
        this.mark_pastes()?;
        Ok(this)
    }

    /// Asks for marked pastes again, after the line editor has ended that.
    pub(crate) fn mark_pastes(&self) -> io::Result<()> {
        write(PASTE_ON)
    }
}

impl Drop for QuietMode {
    fn drop(&mut self) {
        let _ = write(PASTE_OFF);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Writes to the terminal, wherever stdout and stderr go.
fn write(text: &str) -> io::Result<()> {
    match std::fs::OpenOptions::new().write(true).open("/dev/tty") {
        Ok(mut terminal) => terminal.write_all(text.as_bytes()),
        Err(_) if io::stdout().is_terminal() => {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        }
        Err(_) => Ok(()),
    }
}

/// Discards unread input, until the terminal is quiet.
pub(crate) fn discard_input() {
    use rustix::termios::{QueueSelector, tcflush};
    use std::thread::sleep;
    use std::time::Duration;

    for _ in 0..100 {
        sleep(Duration::from_millis(50));
        let pending = rustix::io::ioctl_fionread(io::stdin()).unwrap_or(0);
        if pending == 0 || tcflush(io::stdin(), QueueSelector::IFlush).is_err() {
            return;
        }
    }
}
