//! The program `render-svc`.

use std::io;

use clap::Parser as _;
use render_svc::args::{Args, Command};
use render_svc::{cli, serve};
use tandem_common::telemetry;

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Render(args) => {
            telemetry::init(&args.log)?;
            cli::run(&args, io::stdout().lock())
        }
        Command::Serve(args) => {
            telemetry::init(&args.log)?;
            tokio::runtime::Runtime::new()?.block_on(serve::run(args))
        }
    }
}
