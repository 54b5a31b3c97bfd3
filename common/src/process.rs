//! A service as a child process: start it, wait for its ready line, stop it.
//!
//! The chat client, the benchmarks and the tests use it. It signals only processes that it
//! started and has not yet reaped, so that a process id never belongs to another process.

mod lines;

use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

use lines::{Line, Lines};

/// Time between two looks at whether a process has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time that a dropped service has to exit after SIGTERM.
const DROP_GRACE: Duration = Duration::from_secs(10);

/// Why a service is not ready.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program cannot be run.
    #[error("cannot start {name}")]
    Spawn {
        /// The service.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// The process closed its stdout before its ready line.
    #[error("{name} ended before it was ready")]
    Ended {
        /// The service.
        name: String,
    },
}

/// A running service. Dropping it stops the process, unless it was detached.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Child,
    lines: Lines,
    address: String,
    metrics: Option<String>,
    is_detached: bool,
}

impl Service {
    /// Starts `command`, whose ready line is `NAME listening on ADDRESS`, and waits for that line.
    ///
    /// # Errors
    /// The program cannot be run, or it ended before it was ready.
    pub fn start(name: &str, command: &mut Command) -> Result<Self, StartError> {
        let mut service = Self::spawn(name, command)?;
        while !service.is_ready(Duration::MAX)? {}
        Ok(service)
    }

    /// Starts `command` and returns at once. Its stdout is read by this crate.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Self, StartError> {
        let failed = |source| StartError::Spawn { name: name.to_owned(), source };
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        let lines = Lines::read(name, stdout);
        Ok(Self { name: name.to_owned(), child, lines, address: String::new(), metrics: None, is_detached: false })
    }

    /// Returns true if the service is ready. Waits for at most `patience`.
    ///
    /// # Errors
    /// The service ended before it was ready.
    pub fn is_ready(&mut self, patience: Duration) -> Result<bool, StartError> {
        while self.address.is_empty() {
            match self.lines.next(patience) {
                Line::Address(address) => self.address = address,
                Line::Metrics(address) => self.metrics = Some(address),
                Line::Other => {}
                Line::NoneYet => return Ok(false),
                Line::End => return Err(StartError::Ended { name: self.name.clone() }),
            }
        }
        Ok(true)
    }

    /// Returns the service's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address that the service listens on, once it is ready.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the address of the metrics page, if the service has one.
    #[must_use]
    pub fn metrics(&self) -> Option<&str> {
        self.metrics.as_deref()
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Leaves the process running when this is dropped.
    pub fn detach(&mut self) {
        self.is_detached = true;
    }

    /// Sends a signal. Does nothing if the process has exited.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        Ok(kill_process(id, signal)?)
    }

    /// Waits until the process has exited.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Waits for at most `patience`. Returns nothing if the process still runs then.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn wait_for(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + patience;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends the process at once, with SIGKILL. Does nothing if the process has exited.
    ///
    /// # Errors
    /// The process cannot be ended or waited for.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Sends SIGTERM, waits for at most `grace`, then sends SIGKILL.
    ///
    /// # Errors
    /// The process cannot be signalled or waited for.
    pub fn stop(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        match self.wait_for(grace)? {
            Some(status) => Ok(status),
            None => {
                eprintln!("{} has not exited {} s after SIGTERM; sending SIGKILL", self.name, grace.as_secs());
                self.kill()
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.is_detached {
            return;
        }
        if let Err(error) = self.stop(DROP_GRACE) {
            eprintln!("cannot stop {} (pid {}): {error}", self.name, self.child.id());
        }
    }
}
