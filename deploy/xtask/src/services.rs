//! The two services as children: started, waited for, and stopped whatever happens.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use crate::layout::Layout;

/// How long a service may take to drain before it is killed.
const GRACE: Duration = Duration::from_secs(10);
const DEATH_THROES: Duration = Duration::from_millis(200);
const LOG_TAIL_LINES: usize = 20;

/// Both services. Dropping this stops them, the one in front first.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) render: Service,
    pub(crate) generate: Service,
}

/// The binaries to start.
#[derive(Debug)]
pub(crate) struct Binaries {
    pub(crate) render: PathBuf,
    pub(crate) generate: PathBuf,
}

impl Services {
    pub(crate) async fn start(layout: &Layout, binaries: &Binaries, model: &Path) -> Result<Self> {
        let mut command = Command::new(&binaries.generate);
        command.args(["serve", "--listen", "127.0.0.1:0", "--model"]).arg(model);
        let generate = Service::start(layout, "gen-svc", command).await?;

        let mut command = Command::new(&binaries.render);
        command.args(["serve", "--listen", "127.0.0.1:0", "--models"]).arg(model);
        command.args(["--generate", &format!("http://{}", generate.address)]);
        let render = Service::start(layout, "render-svc", command).await?;
        Ok(Self { render, generate })
    }

    /// Lets both run on when this is dropped.
    pub(crate) fn keep(&mut self) {
        self.render.is_kept = true;
        self.generate.is_kept = true;
    }

    /// If a service has ended by itself, how, and the end of its log.
    pub(crate) fn obituary(&mut self) -> Option<String> {
        [&mut self.generate, &mut self.render].into_iter().find_map(Service::obituary)
    }
}

/// One running service.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    pub(crate) address: String,
    pub(crate) log: PathBuf,
    child: Child,
    is_kept: bool,
}

impl Service {
    /// Starts a service and waits until it says where it listens.
    async fn start(layout: &Layout, name: &'static str, mut command: Command) -> Result<Self> {
        let log = layout.logs().join(format!("{name}.log"));
        let stderr = open_log(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        command.env("NO_COLOR", "1"); // Their logs go to a file.
        command.process_group(0); // Ctrl-C in the terminal is for us, which then decide what becomes of the services.
        let mut child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdout = child.stdout.take();
        let mut service = Self { name, address: String::new(), log, child, is_kept: false };
        service.address = service.wait_until_ready(stdout.context("the service has no stdout")?).await?;
        Ok(service)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    async fn wait_until_ready(&mut self, stdout: ChildStdout) -> Result<String> {
        let mut first_line = read_first_line(stdout);
        let line = loop {
            match tokio::time::timeout(Duration::from_secs(15), &mut first_line).await {
                Ok(line) => break line.unwrap_or_default(),
                Err(_) => eprintln!("{} is still starting; its log is {}", self.name, self.log.display()),
            }
        };
        match line.trim_end().strip_prefix(&format!("{} listening on ", self.name)) {
            Some(address) => Ok(address.to_owned()),
            None => Err(self.failed_start(&line)),
        }
    }

    fn failed_start(&mut self, line: &str) -> anyhow::Error {
        match self.obituary() {
            Some(obituary) => anyhow!("{obituary}"),
            None => {
                anyhow!("{} said {line:?} instead of where it listens; its log is {}", self.name, self.log.display())
            }
        }
    }

    fn obituary(&mut self) -> Option<String> {
        // Its connections close a moment before the process has ended.
        self.ends_within(DEATH_THROES).ok()?.then_some(())?;
        let status = self.child.try_wait().ok().flatten()?;
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Some(format!("{} has ended ({status}). The end of {}:\n{}", self.name, self.log.display(), tail(&log)))
    }

    fn terminate(&mut self) -> io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(()); // Its process id may be someone else's by now.
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        kill_process(pid, Signal::TERM)?;
        if !self.ends_within(GRACE)? {
            eprintln!("{} does not stop; killing it", self.name);
            self.child.kill()?;
            self.child.wait()?;
        }
        Ok(())
    }

    fn ends_within(&mut self, grace: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + grace;
        while Instant::now() < deadline {
            if self.child.try_wait()?.is_some() {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(false)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = self.terminate() {
            eprintln!("cannot stop {} (pid {}): {error}", self.name, self.child.id());
        }
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(path)?;
    // Appending, so that two chats at once interleave their lines in the file and do not overwrite each other's.
    OpenOptions::new().append(true).open(path)
}

/// Reads on after the first line, so that the service can never block on a full pipe.
fn read_first_line(stdout: ChildStdout) -> oneshot::Receiver<String> {
    let (send, receive) = oneshot::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        if reader.read_line(&mut line).is_ok() && send.send(line).is_ok() {
            let _ = io::copy(&mut reader, &mut io::sink());
        }
    });
    receive
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let start = lines.len().saturating_sub(LOG_TAIL_LINES);
    lines[start..].iter().map(|line| format!("  {line}\n")).collect()
}
