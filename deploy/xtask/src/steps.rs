//! Named steps of a check, and a summary of their results.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

/// The lanes that run at once: a lane mostly waits for one program.
const LANES_AT_ONCE: usize = 2;

/// A step: commands that run one after the other, until one fails.
#[derive(Debug)]
pub(crate) struct Step {
    name: String,
    work: Work,
    lane: Option<&'static str>,
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
        Self { name: name.into(), work: Work::Commands(commands), lane: None }
    }

    /// Returns a step that runs nothing and succeeds.
    pub(crate) fn skipped(name: impl Into<String>, reason: String) -> Self {
        Self { name: name.into(), work: Work::Skipped(reason), lane: None }
    }

    /// Lets the step run beside consecutive steps of other lanes, and after those of this lane. Its output is printed at
    /// its end.
    pub(crate) fn in_lane(self, lane: &'static str) -> Self {
        Self { lane: Some(lane), ..self }
    }
}

/// Runs every step, even after a failed one, and prints a summary. Fails if a step failed.
pub(crate) fn run(steps: Vec<Step>) -> Result<ExitCode> {
    let (mut outcomes, mut beside) = (Vec::new(), Vec::new());
    for step in steps {
        if step.lane.is_some() {
            beside.push(step);
            continue;
        }
        outcomes.extend(run_lanes(std::mem::take(&mut beside))?);
        eprintln!("\n=== {}", step.name);
        outcomes.push(run_step(step, succeeds)?);
    }
    outcomes.extend(run_lanes(beside)?);
    eprintln!("\n{}", summary(&outcomes));
    let has_failed = outcomes.iter().any(|outcome| outcome.verdict == Verdict::Failed);
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs steps of several lanes.
fn run_lanes(steps: Vec<Step>) -> Result<Vec<Outcome>> {
    let mut lanes: VecDeque<Vec<Step>> = VecDeque::new();
    for step in steps {
        match lanes.iter_mut().find(|lane| lane[0].lane == step.lane) {
            Some(lane) => lane.push(step),
            None => lanes.push_back(vec![step]),
        }
    }
    let lanes = Mutex::new(lanes);
    let next = || lanes.lock().map_or(None, |mut lanes| lanes.pop_front());
    let work = || {
        let mut outcomes = Vec::new();
        while let Some(lane) = next() {
            for step in lane {
                outcomes.push(run_step(step, succeeds_quietly)?);
            }
        }
        Ok(outcomes)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..LANES_AT_ONCE).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a step panicked"))?);
        Ok(ended.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    })
}

fn run_step(step: Step, succeeds: fn(Command) -> Result<bool>) -> Result<Outcome> {
    let start = Instant::now();
    let verdict = match step.work {
        Work::Commands(commands) => run_commands(commands, succeeds)?,
        Work::Skipped(reason) => Verdict::Skipped(reason),
    };
    let outcome = Outcome { name: step.name, took: start.elapsed(), verdict };
    eprintln!("=== {}", line(&outcome));
    Ok(outcome)
}

fn run_commands(commands: Vec<Command>, succeeds: fn(Command) -> Result<bool>) -> Result<Verdict> {
    for command in commands {
        if !succeeds(command)? {
            return Ok(Verdict::Failed);
        }
    }
    Ok(Verdict::Good)
}

fn succeeds(mut command: Command) -> Result<bool> {
    let program = command.get_program().display().to_string();
    eprintln!("{}", described(&command));
    Ok(command.status().with_context(|| format!("cannot run {program}"))?.success())
}

/// As [`succeeds`]. Prints the output at the end.
fn succeeds_quietly(mut command: Command) -> Result<bool> {
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    let mut stderr = io::stderr().lock();
    writeln!(stderr, "\n{}", described(&command))?;
    stderr.write_all(&output.stdout)?;
    stderr.write_all(&output.stderr)?;
    Ok(output.status.success())
}

fn described(command: &Command) -> String {
    let arguments = command.get_args().collect::<Vec<_>>().join(OsStr::new(" "));
    format!("--- {} {}", command.get_program().display(), arguments.display())
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
