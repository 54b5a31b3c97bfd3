//! Named steps of a check, and a summary of their results.

use std::ffi::OsStr;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A step: commands that run one after the other, until one fails.
#[derive(Debug)]
pub(crate) struct Step {
    name: String,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Commands(Vec<Command>),
    /// The reason why nothing runs.
    Skipped(String),
}

/// The result of a step.
#[derive(Debug)]
struct Outcome {
    name: String,
    took: Duration,
    verdict: Verdict,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Failed,
    Skipped(String),
}

impl Step {
    pub(crate) fn new(name: impl Into<String>, command: Command) -> Self {
        Self::of(name, vec![command])
    }

    pub(crate) fn of(name: impl Into<String>, commands: Vec<Command>) -> Self {
        Self { name: name.into(), work: Work::Commands(commands) }
    }

    /// Returns a step that runs nothing and succeeds.
    pub(crate) fn skipped(name: impl Into<String>, reason: String) -> Self {
        Self { name: name.into(), work: Work::Skipped(reason) }
    }
}

/// Runs every step, even after a failed one, and prints a summary. Fails if a step failed.
pub(crate) fn run(steps: Vec<Step>) -> Result<ExitCode> {
    let outcomes = steps.into_iter().map(run_step).collect::<Result<Vec<_>>>()?;
    eprintln!("\n{}", summary(&outcomes));
    let has_failed = outcomes.iter().any(|outcome| outcome.verdict == Verdict::Failed);
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run_step(step: Step) -> Result<Outcome> {
    eprintln!("\n=== {}", step.name);
    let start = Instant::now();
    let verdict = match step.work {
        Work::Commands(commands) => run_commands(commands)?,
        Work::Skipped(reason) => Verdict::Skipped(reason),
    };
    let outcome = Outcome { name: step.name, took: start.elapsed(), verdict };
    eprintln!("=== {}", line(&outcome));
    Ok(outcome)
}

fn run_commands(commands: Vec<Command>) -> Result<Verdict> {
    for command in commands {
        if !succeeds(command)? {
            return Ok(Verdict::Failed);
        }
    }
    Ok(Verdict::Good)
}

fn succeeds(mut command: Command) -> Result<bool> {
    let program = command.get_program().display().to_string();
    let arguments = command.get_args().collect::<Vec<_>>().join(OsStr::new(" "));
    eprintln!("--- {program} {}", arguments.display());
    Ok(command.status().with_context(|| format!("cannot run {program}"))?.success())
}

fn summary(outcomes: &[Outcome]) -> String {
    let lines: String = outcomes.iter().map(|outcome| format!("  {}\n", line(outcome))).collect();
    let failed = outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Failed);
    let failed: Vec<_> = failed.map(|outcome| outcome.name.as_str()).collect();
    let verdict = if failed.is_empty() { "All good.".to_owned() } else { format!("Failed: {}.", failed.join(", ")) };
    format!("{lines}{verdict}")
}

fn line(outcome: &Outcome) -> String {
    let verdict = match &outcome.verdict {
        Verdict::Good => "ok",
        Verdict::Failed => "FAILED",
        Verdict::Skipped(reason) => return format!("{:<18} skipped: {reason}", outcome.name),
    };
    format!("{:<18} {verdict:<7} {:>6.1} s", outcome.name, outcome.took.as_secs_f64())
}
