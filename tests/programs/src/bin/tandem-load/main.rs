//! Runs tasks on render-svc without a pause, and compares the answers of equal tasks.

#![allow(clippy::print_stdout, reason = "a command-line tool writes its results to stdout")]

mod args;
mod figures;
mod task;
mod worker;

use std::io::{self, Read as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Parser;
use tokio::task::JoinSet;

use args::Args;
use figures::Figures;
use worker::{Plan, Worker};

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(args: Args) -> Result<ExitCode> {
    let has_ended = Arc::new(AtomicBool::new(!args.until_end_of_input));
    if args.until_end_of_input {
        end_with_input(Arc::clone(&has_ended));
    }
    let (began, parallel) = (Instant::now(), args.parallel);
    let plan = Arc::new(Plan::new(args, has_ended));
    let mut workers = JoinSet::new();
    for number in 0..plan.parallel() {
        workers.spawn(Worker::new(Arc::clone(&plan), number).run());
    }
    let mut figures = Figures::default();
    while let Some(found) = workers.join_next().await {
        figures.add(found.context("a worker ended early")?);
    }
    println!(
        "{figures}, {parallel} at a time, {:.1} per second",
        figures.done() as f64 / began.elapsed().as_secs_f64()
    );
    Ok(if figures.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sets the flag at the end of standard input.
fn end_with_input(has_ended: Arc<AtomicBool>) {
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        has_ended.store(true, Ordering::Relaxed);
    });
}
