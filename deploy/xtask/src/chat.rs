//! `cargo xtask chat`: sets up, builds, starts both services, talks, stops both.

mod answer;
mod input;
mod session;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::cargo::{self, Profile};
use crate::layout::Layout;
use crate::services::{Binaries, Service, Services};
use crate::setup::{self, model};
use session::{End, Session};

/// Talk to a real model through both services.
///
/// Sets up what is missing (libtorch, a small model), builds, starts gen-svc and render-svc on free ports of this machine,
/// streams the answer, and stops both. Only the answer goes to stdout.
///
/// Without a prompt it is a conversation: type, read, type again. Ctrl-C cancels an answer; /exit or Ctrl-D ends. When
/// stdin is not a terminal, each of its lines is one turn.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask chat \"Why is the sky blue?\"
  cargo xtask chat --temperature 0 --max-new-tokens 64 \"Count to ten.\"
  cargo xtask chat --system \"You are a pirate.\"
  printf 'My name is Ada.\\nWhat is my name?\\n' | cargo xtask chat
  cargo xtask chat --keep \"Hello\"                      leaves the services running and says how to call them
  cargo xtask chat --connect 127.0.0.1:41234 \"Hello\"   talks to a render-svc that already runs")]
pub(crate) struct Args {
    /// What to ask. Without it: a conversation.
    prompt: Vec<String>,

    /// A model to use instead of the default one: a GGUF file, or a model folder.
    #[arg(long, value_name = "PATH", conflicts_with = "connect")]
    model: Option<PathBuf>,

    /// Leave the services running; print their addresses, how to call them and how to stop them.
    #[arg(long, conflicts_with = "connect")]
    keep: bool,

    /// Talk to the render-svc at this address; set up, build and start nothing.
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,

    #[command(flatten)]
    wishes: Wishes,
}

/// How to answer.
#[derive(Debug, clap::Args)]
struct Wishes {
    /// The longest answer, in tokens.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_new_tokens: u32,

    /// How freely to choose words: 0 always takes the likeliest. [default: 0.2 for the default model, else the model's own]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f32>,

    /// Choose among the likeliest tokens that together have this probability. [default: 0.9 for the default model, else the
    /// model's own]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,

    /// Makes an answer repeatable. [default: drawn anew, and printed after the answer]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// A system message to begin with.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
}

impl Wishes {
    /// The values that the default model's authors recommend; at temperature 1 a model this small rambles.
    fn or_recommended(mut self) -> Self {
        self.temperature = self.temperature.or(Some(0.2));
        self.top_p = self.top_p.or(Some(0.9));
        self
    }
}

pub(crate) fn run(layout: &Layout, mut args: Args) -> Result<ExitCode> {
    let prepared = if args.connect.is_none() { Some(prepare(layout, &args)?) } else { None };
    if prepared.is_some() && args.model.is_none() {
        args.wishes = args.wishes.or_recommended();
    }
    // Stopping the services blocks this thread; the connection to them must go on meanwhile, so it has a thread of its own.
    let runtime =
        Builder::new_multi_thread().worker_threads(1).enable_all().build().context("cannot start the async runtime")?;
    let end = runtime.block_on(until_told_to_stop(converse(layout, prepared, args)));
    match end {
        Ok(end) => Ok(end.exit_code()),
        Err(error) if is_closed_output(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

/// What to start.
#[derive(Debug)]
struct Prepared {
    model: PathBuf,
    binaries: Binaries,
}

fn prepare(layout: &Layout, args: &Args) -> Result<Prepared> {
    let model = args.model.clone().unwrap_or_else(|| model::path(layout));
    if args.model.is_some() && !model.exists() {
        bail!("there is no model at {}", model.display());
    }
    setup::ensure(layout)?;
    let artifacts = cargo::build(layout, Profile::Dev, &["gen-svc", "render-svc"])?;
    let binaries = Binaries { render: artifacts.executable("render-svc")?, generate: artifacts.executable("gen-svc")? };
    Ok(Prepared { model, binaries })
}

/// Dropping the work stops the services, which is how SIGTERM and a closed terminal end it.
async fn until_told_to_stop(work: impl Future<Output = Result<End>>) -> Result<End> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::select! {
        end = work => end,
        _ = terminate.recv() => Ok(End::Signal(SignalKind::terminate())),
        _ = hang_up.recv() => Ok(End::Signal(SignalKind::hangup())),
    }
}

async fn converse(layout: &Layout, prepared: Option<Prepared>, args: Args) -> Result<End> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let start = async {
        let services = start(layout, prepared.as_ref(), args.keep).await?;
        let address =
            services.as_ref().map(|services| services.render.address.clone()).or(args.connect).unwrap_or_default();
        anyhow::Ok((services, Session::connect(&address, args.wishes).await?))
    };
    let (mut services, mut session) = tokio::select! {
        started = start => started?,
        _ = interrupts.recv() => return Ok(End::Signal(SignalKind::interrupt())),
    };
    let end = match args.prompt.as_slice() {
        [] => session.converse(&mut interrupts).await,
        words => session.turn(words.join(" "), &mut interrupts).await,
    };
    end.map_err(|error| match services.as_mut().and_then(Services::obituary) {
        Some(obituary) => error.context(obituary),
        None => error,
    })
}

async fn start(layout: &Layout, prepared: Option<&Prepared>, is_kept: bool) -> Result<Option<Services>> {
    let Some(prepared) = prepared else { return Ok(None) };
    let mut services = Services::start(layout, &prepared.binaries, &prepared.model).await?;
    if is_kept {
        services.keep();
        eprintln!("{}", how_to_use(&services));
    }
    Ok(Some(services))
}

fn how_to_use(services: &Services) -> String {
    let line = |service: &Service| {
        format!("  {:<10}  {}  pid {}  log {}", service.name, service.address, service.pid(), service.log.display())
    };
    let (render, generate) = (&services.render, &services.generate);
    let address = &render.address;
    format!(
        r#"Both services keep running:
{}
{}
Ask:   cargo xtask chat --connect {address} "Why is the sky blue?"
Call:  grpcurl -plaintext -d '{{"conversation": {{"messages": [{{"role": "user", "text": "Hello"}}]}}, "stop": {{"max_new_tokens": 32}}}}' {address} tandem.task.v1.TaskService/RunTask
Stop:  kill {} {}
"#,
        line(render),
        line(generate),
        render.pid(),
        generate.pid()
    )
}

/// Whether whoever read our answer, such as `head`, has seen enough.
fn is_closed_output(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
