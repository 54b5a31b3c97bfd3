//! The services that `--keep` left running, in a file. A process is signalled only if it is still
//! the started one: same id, same start time, same name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Time that a service has to exit after SIGTERM; longer than its own default for unfinished calls.
const GRACE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Services that were left running, in the order in which they are stopped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) model: PathBuf,
    /// The engine's kind and address, if another one than gen-svc generates.
    pub(crate) engine: Option<String>,
    pub(crate) services: Vec<KeptService>,
}

/// One of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeptService {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) log: PathBuf,
    pid: u32,
    process: Process,
}

impl KeptService {
    /// Describes a process that runs.
    pub(crate) fn new(name: &str, address: &str, pid: u32, log: &Path) -> Result<Self> {
        let process = Process::read(pid).with_context(|| format!("{name} (pid {pid}) has ended"))?;
        let (name, address, log) = (name.to_owned(), address.to_owned(), log.to_owned());
        Ok(Self { name, address, log, pid, process })
    }

    /// Returns true if the process is still the started one.
    fn is_running(&self) -> bool {
        Process::read(self.pid).is_some_and(|process| process == self.process)
    }

    /// Stops the process. Returns false if it had ended before.
    fn stop(&self) -> Result<bool> {
        let id = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("an invalid process id")?;
        // The handle keeps meaning this process, so that the id cannot be reused after the check.
        let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { return Ok(false) };
        if !self.is_running() {
            return Ok(false);
        }
        let failed = || format!("cannot stop {} (pid {})", self.name, self.pid);
        pidfd_send_signal(&process, Signal::TERM).with_context(failed)?;
        let deadline = Instant::now() + GRACE;
        while self.is_running() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        if self.is_running() {
            eprintln!("{} has not exited {} s after SIGTERM; sending SIGKILL", self.name, GRACE.as_secs());
            pidfd_send_signal(&process, Signal::KILL).with_context(failed)?;
        }
        Ok(true)
    }

    /// Returns one line about the service.
    pub(crate) fn line(&self) -> String {
        let state = if self.is_running() { "" } else { "  (has ended)" };
        format!("  {:<10}  {}  pid {}  log {}{state}", self.name, self.address, self.pid, self.log.display())
    }
}

impl Kept {
    /// Returns true if every service runs.
    pub(crate) fn is_running(&self) -> bool {
        self.services.iter().all(KeptService::is_running)
    }

    /// Returns the address of render-svc.
    pub(crate) fn address(&self) -> &str {
        self.services.first().map_or("", |service| &service.address)
    }

    /// Returns the services and the model, a line each.
    pub(crate) fn lines(&self) -> String {
        let services: String = self.services.iter().map(|service| service.line() + "\n").collect();
        format!("{services}  model       {}\n", self.model.display())
    }

    /// Stops the services in order. Returns the lines of the stopped ones.
    pub(crate) fn stop(&self) -> Result<Vec<String>> {
        let mut stopped = Vec::new();
        for service in &self.services {
            let line = service.line();
            if service.stop()? {
                stopped.push(line);
            }
        }
        Ok(stopped)
    }
}

/// The file with the kept services, locked: a second command waits until the first has written it.
#[derive(Debug)]
pub(crate) struct Record(File);

impl Record {
    pub(crate) async fn open(state: &Path) -> Result<Self> {
        let path = state.join("chat-services.json");
        let failed = || format!("cannot use {}", path.display());
        fs::create_dir_all(state).with_context(failed)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.with_context(failed)?;
        let mut is_noticed = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
                Err(TryLockError::WouldBlock) if is_noticed => tokio::time::sleep(POLL_INTERVAL).await,
                Err(TryLockError::WouldBlock) => {
                    eprintln!("Another chat starts or stops the services; waiting for it.");
                    is_noticed = true;
                }
            }
        }
    }

    /// Returns the services, of which at least one runs.
    pub(crate) fn read(&mut self) -> Result<Option<Kept>> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        // An unreadable file is that of another version, or of a command that was killed.
        let kept: Option<Kept> = serde_json::from_str(&text).ok();
        Ok(kept.filter(|kept| kept.services.iter().any(KeptService::is_running)))
    }

    /// Replaces the content.
    pub(crate) fn write(&mut self, kept: Option<&Kept>) -> Result<()> {
        self.0.set_len(0)?;
        self.0.rewind()?;
        if let Some(kept) = kept {
            self.0.write_all(&serde_json::to_vec_pretty(kept)?)?;
        }
        Ok(())
    }
}

/// The marks of a process, from `/proc/PID/stat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    name: String,
    /// The start of the process, in the kernel's ticks since boot.
    started: u64,
}

impl Process {
    /// Returns the process with this id, unless it has ended.
    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may contain any character.
        let (head, fields) = stat.rsplit_once(") ")?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = fields.split(' ').collect();
        let is_zombie = matches!(fields.first(), Some(&("Z" | "X")));
        // Field 22 of the whole line, of which the first two are before the state.
        let started = fields.get(19)?.parse().ok()?;
        (!is_zombie).then_some(Self { name, started })
    }
}
