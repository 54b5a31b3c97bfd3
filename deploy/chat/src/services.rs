//! Both services, as child processes with log files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tandem_common::process::Service;

use crate::args::Engine;
use crate::kept::{Kept, KeptService};

/// Time between two looks at whether a service is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two messages about a service that is not ready yet.
const NOTICE_INTERVAL: Duration = Duration::from_secs(15);
/// Time that a process may take to exit after its connections have closed.
const EXIT_GRACE: Duration = Duration::from_millis(200);
const LOG_TAIL_LINES: usize = 20;

/// The programs to start, and the default model, which xtask passes.
#[derive(Debug, clap::Args)]
pub(crate) struct Programs {
    /// The gen-svc program.
    #[arg(
        long,
        value_name = "PATH",
        required_unless_present_any = ["connect", "stop", "status", "engine_url"]
    )]
    gen_svc: Option<PathBuf>,
    /// The gen-bridge program, with --engine-url.
    #[arg(long, value_name = "PATH", requires = "engine_url")]
    gen_bridge: Option<PathBuf>,
    /// The render-svc program.
    #[arg(long, value_name = "PATH", required = false, required_unless_present_any = ["connect", "stop", "status"])]
    render_svc: PathBuf,
    /// The model to use without --model.
    #[arg(long, value_name = "PATH", required = false, required_unless_present_any = ["connect", "stop", "status"])]
    pub(crate) default_model: PathBuf,
}

impl Programs {
    /// Returns the name and the command of the service that generates.
    fn generation(&self, engine: &Engine) -> Result<(&'static str, Command)> {
        let serve = |name: &'static str, program: &Option<PathBuf>| {
            let program = program.as_ref().with_context(|| format!("--{name} PATH is missing; use `cargo xtask chat`"));
            let mut command = Command::new(program?);
            command.arg("serve");
            anyhow::Ok((name, command))
        };
        let Some(url) = &engine.engine_url else { return serve("gen-svc", &self.gen_svc) };
        let (name, mut command) = serve("gen-bridge", &self.gen_bridge)?;
        command.args(["--engine", &engine.engine, "--engine-url", url]);
        Ok((name, command))
    }
}

/// Both services. Dropping this stops them, render-svc first, so that running requests are not cut
/// off.
#[derive(Debug)]
pub(crate) struct Services {
    render: Logged,
    generate: Logged,
}

impl Services {
    /// Starts both. Their logs in the folder `logs` have names that start with `prefix`.
    pub(crate) async fn start(
        programs: &Programs,
        (model, engine): (&Path, &Engine),
        logs: &Path,
        prefix: &str,
    ) -> Result<Self> {
        let log = |name: &str| logs.join(format!("{prefix}{name}.log"));
        let (name, mut command) = programs.generation(engine)?;
        command.args(["--listen", "127.0.0.1:0", "--model"]).arg(model);
        let generate = Logged::start(log(name), name, command).await?;
        let mut command = Command::new(&programs.render_svc);
        command.args(["serve", "--listen", "127.0.0.1:0", "--models"]).arg(model);
        command.args(["--generate", &format!("http://{}", generate.service.address())]);
        let render = Logged::start(log("render-svc"), "render-svc", command).await?;
        Ok(Self { render, generate })
    }

    /// Returns how to find both again.
    pub(crate) fn kept(&self, model: PathBuf, engine: Option<String>) -> Result<Kept> {
        let services = [&self.render, &self.generate].map(Logged::kept).into_iter().collect::<Result<_>>()?;
        Ok(Kept { model, engine, services })
    }

    /// Leaves both running when this is dropped.
    pub(crate) fn detach(&mut self) {
        self.render.service.detach();
        self.generate.service.detach();
    }

    /// Returns the address of render-svc.
    pub(crate) fn address(&self) -> &str {
        self.render.service.address()
    }

    /// Describes the service that has exited, with the end of its log. Returns nothing if both run.
    pub(crate) fn exit_report(&mut self) -> Option<String> {
        [&mut self.generate, &mut self.render].into_iter().find_map(Logged::exit_report)
    }
}

/// A service and its log file.
#[derive(Debug)]
struct Logged {
    service: Service,
    log: PathBuf,
}

impl Logged {
    /// Starts a service and waits until it is ready.
    async fn start(log: PathBuf, name: &str, mut command: Command) -> Result<Self> {
        let stderr = open_log(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stderr(stderr);
        command.env("NO_COLOR", "1"); // The log is a file.
        command.process_group(0); // Ctrl-C in the terminal goes to this process alone.
        let mut this = Self { service: Service::spawn(name, &mut command)?, log };
        this.ready().await?;
        Ok(this)
    }

    async fn ready(&mut self) -> Result<()> {
        let mut noticed = Instant::now();
        loop {
            match self.service.is_ready(Duration::ZERO) {
                Ok(true) => return Ok(()),
                Ok(false) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(error) => return Err(self.exit_report().map_or(error.into(), |report| anyhow!("{report}"))),
            }
            if noticed.elapsed() >= NOTICE_INTERVAL {
                noticed = Instant::now();
                eprintln!("{} is still starting; its log is {}", self.service.name(), self.log.display());
            }
        }
    }

    fn exit_report(&mut self) -> Option<String> {
        let status = self.service.wait_for(EXIT_GRACE).ok()??;
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let (name, path) = (self.service.name(), self.log.display());
        Some(format!("{name} has ended ({status}). The end of {path}:\n{}", tail(&log)))
    }

    fn kept(&self) -> Result<KeptService> {
        KeptService::new(self.service.name(), self.service.address(), self.service.id(), &self.log)
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(path)?;
    // In append mode two chats at once interleave their lines, and do not overwrite each other's.
    OpenOptions::new().append(true).open(path)
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let start = lines.len().saturating_sub(LOG_TAIL_LINES);
    lines[start..].iter().map(|line| format!("  {line}\n")).collect()
}
