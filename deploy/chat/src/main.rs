//! A terminal client for render-svc. `cargo xtask chat` builds and starts it.

mod answer;
mod end;
mod input;
mod services;
mod session;

use std::io;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use end::End;
use services::{Programs, Services};
use session::Session;

/// Talks to render-svc. Without --connect, starts both services first.
#[derive(Debug, Parser)]
#[command(name = "tandem-chat")]
struct Cli {
    #[command(flatten)]
    chat: tandem_chat_args::Args,
    #[command(flatten)]
    programs: Option<Programs>,
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
    runtime.block_on(until_signal(converse(args)))
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

async fn converse(args: Cli) -> Result<End> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let words = args.chat.prompt.clone();
    let (mut services, mut session) = tokio::select! {
        started = start(args) => started?,
        _ = interrupts.recv() => return Ok(End::INTERRUPTED),
    };
    let end = match words.as_slice() {
        [] => session.converse(&mut interrupts).await,
        words => session.turn(words.join(" "), &mut interrupts).await,
    };
    end.map_err(|error| match services.as_mut().and_then(Services::exit_report) {
        Some(report) => error.context(report),
        None => error,
    })
}

/// Connects to the render-svc that the user named, or to one that this starts.
async fn start(args: Cli) -> Result<(Option<Services>, Session)> {
    let tandem_chat_args::Args { model, keep, connect, generation, prompt: _ } = args.chat;
    if let Some(address) = connect {
        return Ok((None, Session::connect(&address, generation).await?));
    }
    let programs = args.programs.context("--connect HOST:PORT is missing; or use `cargo xtask chat`")?;
    let generation = if model.is_none() { generation.or_recommended() } else { generation };
    let services = Services::start(&programs, &model.unwrap_or_else(|| programs.default_model.clone()), keep).await?;
    let session = Session::connect(services.address(), generation).await?;
    Ok((Some(services), session))
}
