//! Measures Tandem against what people would use instead, each pair in one run on the same cases. Every figure printed was measured
//! in that run.

mod child;
mod gateway;
mod generate;
mod machine;
mod numbers;
mod render;
mod stats;

use clap::{Parser, Subcommand};
use render_svc::args;
use tandem_common::telemetry::Telemetry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Tandem against what people would use instead.
#[derive(Debug, Parser)]
#[command(name = "tandem-bench")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Render(render::Render),
    Generate(generate::Generate),
    Gateway(gateway::Gateway),
    /// The service that is measured, in a process of its own.
    #[command(hide = true)]
    Serve(Box<args::Serve>),
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    match Args::parse().command {
        Command::Render(args) => runtime.block_on(render::measure(&args)),
        Command::Generate(args) => runtime.block_on(generate::measure(&args)),
        Command::Gateway(args) => runtime.block_on(gateway::measure(&args)),
        Command::Serve(args) => runtime.block_on(async {
            let telemetry = Telemetry::start("render-svc", &args.telemetry)?;
            render_svc::serve::run(*args, &telemetry).await
        }),
    }
}
