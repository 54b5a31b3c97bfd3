//! The binary `gen-svc`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use gen_svc::args::{Args, Command};
use gen_svc::{cli, serve};
use tandem_common::check::Check;
use tandem_common::telemetry::{self, Telemetry};

fn main() -> ExitCode {
    let ended = match Args::parse().command {
        Command::Serve(args) => run_server(*args),
        Command::Generate(args) => generate(args),
        Command::Check(args) => check(args.into()),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("gen-svc: {error:#}");
        ExitCode::FAILURE
    })
}

fn check(check: Check) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(check.run())?;
    writeln!(io::stdout(), "SERVING")?;
    Ok(ExitCode::SUCCESS)
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
