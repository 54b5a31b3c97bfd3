//! The binary `gen-svc`.

use std::process::ExitCode;

use clap::Parser as _;
use gen_svc::args::{Args, Command};
use gen_svc::{cli, serve};
use tandem_common::telemetry::{self, Telemetry};

fn main() -> ExitCode {
    let ended = match Args::parse().command {
        Command::Serve(args) => run_server(*args),
        Command::Generate(args) => generate(args),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("gen-svc: {error:#}");
        ExitCode::FAILURE
    })
}

fn generate(args: gen_svc::args::Generate) -> anyhow::Result<ExitCode> {
    telemetry::init(&args.log)?;
    Ok(cli::run(args)?)
}

fn run_server(args: gen_svc::args::Serve) -> anyhow::Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let telemetry = Telemetry::start("gen-svc", &args.telemetry)?;
        let ended = serve::run(args, &telemetry).await;
        telemetry.end().await;
        Ok(ended.map(|()| ExitCode::SUCCESS)?)
    })
}
