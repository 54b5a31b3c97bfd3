//! A terminal client for render-svc. `cargo xtask chat` builds and starts it.

mod answer;
mod args;
mod command;
mod connect;
mod diagnosis;
mod editor;
mod end;
mod history;
mod image;
mod input;
mod kept;
mod paste;
mod refusal;
mod services;
mod session;
mod start;
mod target;
mod terminal;
mod wrap;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use args::Args;
use end::End;
use image::Image;
use services::{Programs, Services};

/// Talks to render-svc. Without --connect, starts both services first.
#[derive(Debug, Parser)]
#[command(name = "tandem-chat")]
struct Cli {
    #[command(flatten)]
    chat: Args,
    #[command(flatten)]
    programs: Option<Programs>,
    /// The folder for logs, the history and the record of kept services.
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(end) => end.exit_code(),
        // The reader of the answer, such as `head`, has closed the pipe.
        Err(error) if is_closed_output(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_closed_output(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run(args: Cli) -> Result<End> {
    // Stopping the services blocks this thread, while their connections still have to be served:
    // one thread more.
    let runtime =
        Builder::new_multi_thread().worker_threads(1).enable_all().build().context("cannot start the async runtime")?;
    runtime.block_on(until_signal(work(args)))
}

/// Runs `work` until SIGTERM or a closed terminal. Dropping the work stops the services.
async fn until_signal(work: impl Future<Output = Result<End>>) -> Result<End> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::select! {
        end = work => end,
        _ = terminate.recv() => Ok(End::Signal(SignalKind::terminate())),
        _ = hang_up.recv() => Ok(End::Signal(SignalKind::hangup())),
    }
}

async fn work(args: Cli) -> Result<End> {
    let state = args.state.context("--state FOLDER is missing; use `cargo xtask chat`");
    match (args.chat.stop, args.chat.status) {
        (true, _) => start::stop_kept(&state?).await,
        (_, true) => start::show_kept(&state?).await,
        _ => converse(args.chat, args.programs, state.ok()).await,
    }
}

async fn converse(args: Args, programs: Option<Programs>, state: Option<PathBuf>) -> Result<End> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let words = args.prompt.join(" ");
    // Before the services start, so that a wrong file fails at once.
    let images = args.images.iter().map(|path| Image::read(path)).collect::<Result<Vec<_>>>()?;
    let history = state.clone().filter(|_| !args.no_history);
    let (mut services, mut session) = tokio::select! {
        started = start::start(args, programs, state) => started?,
        _ = interrupts.recv() => return Ok(End::INTERRUPTED),
    };
    session.attach(images);
    let end = match words.as_str() {
        "" => session.converse(history.as_deref(), services.is_some(), &mut interrupts).await,
        _ => session.ask(words, &mut interrupts).await,
    };
    end.map_err(|error| match services.as_mut().and_then(Services::exit_report) {
        Some(report) => error.context(report),
        None => error,
    })
}
