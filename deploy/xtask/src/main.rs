//! `cargo xtask`, the project's only task runner: sets Tandem up, runs it, tests it and measures
//! it.

#![allow(clippy::print_stdout, reason = "a command-line tool writes its results to stdout")]

mod bench;
mod cargo;
mod chart;
mod chat;
#[path = "../../chat/src/args.rs"]
#[expect(dead_code, reason = "the client reads the other arguments")]
mod chat_args;
mod ci;
mod dist;
mod docs;
mod errors;
mod files;
mod gpu_kit;
mod images;
mod layout;
mod output;
mod release;
mod sbom;
mod setup;
mod simulate;
mod steps;
mod test;
mod text_only;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::layout::Layout;

/// Sets Tandem up, runs it, tests it, measures it.
///
/// All downloads and tools go into `.tandem/` in the project's folder. Remove that folder to undo
/// everything. A repeated command fetches only missing parts.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "\
Start here:
  cargo xtask chat \"Why is the sky blue?\"    fetches a small model, builds, then answers
  cargo xtask test                           fetches libtorch too, then runs every test

After the second one, plain `cargo build`, `cargo test` and `cargo run` work too."
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Setup(setup::Args),
    Chat(chat_args::Args),
    Chart(chart::Args),
    Test(test::Args),
    Bench(bench::Args),
    Ci(ci::Args),
    Dist(dist::Args),
    Docs(docs::Args),
    Errors(errors::Args),
    GpuKit(gpu_kit::Args),
    Images(images::Args),
    Sbom(sbom::Args),
    Simulate(simulate::Args),
    TextOnly(text_only::Args),
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let layout = Layout::find();
    match command {
        Command::Setup(args) => setup::run(&layout, &args),
        Command::Chat(args) => chat::run(&layout, &args),
        Command::Chart(args) => chart::run(&layout, &args),
        Command::Test(args) => test::run(&layout, &args),
        Command::Bench(args) => bench::run(&layout, &args),
        Command::Ci(args) => ci::run(&layout, &args),
        Command::Dist(args) => dist::run(&layout, &args),
        Command::Docs(_) => docs::run(&layout),
        Command::Errors(_) => errors::run(&layout),
        Command::GpuKit(args) => gpu_kit::run(&layout, &args),
        Command::Images(args) => images::run(&layout, &args),
        Command::Sbom(args) => sbom::run(&layout, &args),
        Command::Simulate(args) => simulate::run(&layout, &args),
        Command::TextOnly(_) => text_only::run(&layout),
    }
}
