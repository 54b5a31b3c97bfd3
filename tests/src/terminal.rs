//! A program on a pseudo-terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// The most that a test waits for an expected output or for an end.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const ROWS: u16 = 24;

/// A program whose stdin, stdout and stderr are a terminal. Dropping this kills the program.
#[derive(Debug)]
pub struct Terminal {
    master: File,
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    /// Ends once the terminal is closed.
    collector: Option<JoinHandle<()>>,
    /// The part of the output that was waited for.
    seen: usize,
}

impl Terminal {
    /// Starts a program on a terminal with this width.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn start(program: &Path, arguments: &[impl AsRef<str>], columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let master = openpt(flags).expect("a pseudo-terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it can be opened");
        let terminal = ioctl_tiocgptpeer(&master, flags).expect("its other end");
        let end = || Stdio::from(terminal.try_clone().expect("a handle"));
        // `setsid --ctty` makes it the terminal that sends signals.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program).args(arguments.iter().map(AsRef::as_ref));
        command.env("TERM", "xterm").env_remove("TERM_PROGRAM");
        resize(&master, columns);
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("setsid runs");
        let output = Arc::default();
        let collector = collect(File::from(master.try_clone().expect("a handle")), Arc::clone(&output));
        Self { master: File::from(master), child, output, collector: Some(collector), seen: 0 }
    }

    /// Types text, or sends the bytes of keys.
    ///
    /// # Panics
    /// If the program has ended.
    pub fn send(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("the program reads");
    }

    /// Sends a paste, marked as terminals do.
    ///
    /// # Panics
    /// If the program has ended.
    pub fn paste(&mut self, text: &str) {
        self.send(&format!("\x1b[200~{}\x1b[201~", text.replace('\n', "\r")));
    }

    /// Changes the width.
    ///
    /// # Panics
    /// If the terminal is closed.
    pub fn resize(&self, columns: u16) {
        resize(&self.master, columns);
    }

    /// Waits until the program has written `text`, and returns the output since the last wait, up to
    /// the end of `text`.
    ///
    /// # Panics
    /// If the text does not come in time.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let start = Instant::now();
        loop {
            let output = String::from_utf8_lossy(&self.output.lock().expect("no panic")[self.seen..]).into_owned();
            if let Some(found) = output.find(text) {
                let new = output[..found + text.len()].to_owned();
                self.seen += new.len();
                return new;
            }
            assert!(start.elapsed() < PATIENCE, "no {text:?} in {output:?}");
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the program has ended.
    ///
    /// # Panics
    /// If it does not end in time.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it has not ended");
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the program has ended, and returns the output since the last wait, with plain newlines.
    ///
    /// # Panics
    /// If it does not end in time, or fails.
    #[track_caller]
    pub fn rest(&mut self) -> String {
        let status = self.wait();
        if let Some(collector) = self.collector.take() {
            collector.join().expect("no panic");
        }
        let output = String::from_utf8_lossy(&self.output.lock().expect("no panic")[self.seen..]).into_owned();
        assert!(status.success(), "{output}");
        output.replace("\r\n", "\n")
    }

    /// Returns true if the terminal echoes typed text and edits lines itself, as for a shell.
    ///
    /// # Panics
    /// If the terminal is closed.
    #[must_use]
    pub fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.master).expect("a mode").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: &(impl std::os::fd::AsFd + ?Sized), columns: u16) {
    let size = Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a size");
}

/// Collects the output in a thread, until the terminal is closed.
fn collect(mut terminal: File, output: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(size @ 1..) = terminal.read(&mut buffer) {
            output.lock().expect("no panic").extend(&buffer[..size]);
        }
    })
}
