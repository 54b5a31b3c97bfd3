//! The program `render-svc`.

use std::io;
use std::process::ExitCode;

use clap::Parser as _;
use render_svc::args::{Args, Command, RenderArgs, Serve};
use render_svc::{cli, serve};
use tandem_common::status::chain;
use tandem_common::telemetry::{self, Telemetry};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let ended = match Args::parse().command {
        Command::Serve(args) => run_server(*args),
        Command::Render(args) => render(args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("render-svc: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn render(args: RenderArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log)?;
    Ok(cli::run(args.into(), io::stdout().lock())?)
}

fn run_server(args: Serve) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let ended = runtime.block_on(async {
        let telemetry = Telemetry::start("render-svc", &args.telemetry)?;
        let ended = serve::run(args, &telemetry).await;
        telemetry.end().await;
        Ok(ended?)
    });
    // Cancels the loading of models, if it still runs.
    runtime.shutdown_background();
    ended
}
