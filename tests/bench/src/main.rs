//! Compares Tandem with its alternatives. One run measures both on the same cases, and prints only
//! figures from this run.

mod bridge;
mod child;
mod figures;
mod gateway;
mod generate;
mod machine;
mod numbers;
mod progress;
mod render;
mod sizing;
mod stats;

use clap::{Parser, Subcommand};
use render_svc::args;
use tandem_common::program::Build;
use tandem_common::telemetry::Telemetry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares Tandem with its alternatives.
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
    Bridge(bridge::Bridge),
    Gateway(gateway::Gateway),
    Sizing(sizing::Sizing),
    /// The measured service, as a child process.
    #[command(hide = true)]
    Serve(Box<args::Serve>),
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    match Args::parse().command {
        Command::Render(args) => runtime.block_on(render::measure(&args)),
        Command::Generate(args) => runtime.block_on(generate::measure(&args)),
        Command::Bridge(args) => runtime.block_on(bridge::measure(&args)),
        Command::Gateway(args) => runtime.block_on(gateway::measure(&args)),
        Command::Sizing(args) => runtime.block_on(sizing::measure(&args)),
        Command::Serve(args) => runtime.block_on(async {
            let build = Build { name: "render-svc", commit: None, components: Vec::new() };
            let telemetry = Telemetry::start(&build, &args.telemetry)?;
            Ok(render_svc::serve::run(*args, &telemetry).await?)
        }),
    }
}
