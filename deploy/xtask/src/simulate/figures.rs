//! Measured times of tasks.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::files::read;

/// The seconds of a task by the number of tasks that a replica runs at the same time.
#[derive(Debug)]
pub(super) struct Figures {
    /// How the figures were measured: the file's lines that begin with `#`.
    notes: Vec<String>,
    /// Pairs of running tasks and seconds, with rising numbers of tasks. The last is the limit.
    times: Vec<(f64, f64)>,
}

impl Figures {
    /// Reads a file of lines `TASKS SECONDS`.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = read(file)?;
        let (notes, lines): (Vec<_>, Vec<_>) =
            text.lines().filter(|line| !line.trim().is_empty()).partition(|line| line.starts_with('#'));
        let times = lines.into_iter().map(|line| pair(line).with_context(|| format!("{}: {line:?}", file.display())));
        let times = times.collect::<Result<Vec<_>>>()?;
        if times.is_empty() || times.windows(2).any(|two| two[0].0 >= two[1].0) {
            bail!("{} needs lines `TASKS SECONDS` with rising numbers of tasks", file.display());
        }
        let notes = notes.iter().map(|line| line.trim_start_matches('#').trim().to_owned());
        Ok(Self { notes: notes.collect(), times })
    }

    /// Returns the most tasks that a replica runs at the same time.
    pub(super) fn most(&self) -> usize {
        self.times.last().map_or(1, |last| last.0 as usize)
    }

    /// Returns the seconds of a task while a replica runs this number of tasks.
    pub(super) fn seconds(&self, running: usize) -> f64 {
        let running = running as f64;
        let after = self.times.iter().position(|&(tasks, _)| tasks >= running).unwrap_or(self.times.len() - 1);
        let (high, low) = (self.times[after], self.times[after.saturating_sub(1)]);
        if high.0 <= low.0 || running <= low.0 {
            return low.1;
        }
        low.1 + (high.1 - low.1) * (running - low.0) / (high.0 - low.0)
    }

    pub(super) fn describe(&self) -> String {
        let times = self.times.iter().map(|(tasks, seconds)| {
            format!("  {tasks} at the same time: {seconds:.2} s each, {:.0} tasks per minute", tasks * 60.0 / seconds)
        });
        self.notes.iter().map(|note| format!("  {note}")).chain(times).collect::<Vec<_>>().join("\n")
    }
}

fn pair(line: &str) -> Result<(f64, f64)> {
    let (tasks, seconds) = line.split_once(' ').context("a line needs two numbers")?;
    let (tasks, seconds) = (tasks.trim().parse::<f64>()?, seconds.trim().parse::<f64>()?);
    if tasks < 1.0 || seconds <= 0.0 {
        bail!("a number is too small");
    }
    Ok((tasks, seconds))
}
