//! Helm's commands for the chart.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use crate::files::read;
use crate::layout::Layout;
use crate::setup::programs;

/// Helm, and the chart.
#[derive(Debug)]
pub(super) struct Helm {
    program: PathBuf,
    chart: PathBuf,
}

impl Helm {
    pub(super) fn ensure(layout: &Layout) -> Result<Self> {
        Ok(Self { program: programs::helm(layout)?, chart: layout.root().join("deploy/chart") })
    }

    pub(super) fn chart(&self) -> &Path {
        &self.chart
    }

    /// # Errors
    /// Helm has an error or a warning for the chart with these values.
    pub(super) fn lint(&self, values: &Path) -> Result<()> {
        let output = self.output(&["lint", "--strict"], &[], values)?;
        self.text(&output, values).map(drop)
    }

    /// Returns the manifests of a release `tandem` in the namespace `llm`.
    pub(super) fn template(&self, values: &Path) -> Result<String> {
        let output = self.output(&["template", "tandem"], &["--namespace", "llm"], values)?;
        self.text(&output, values)
    }

    /// Returns a failure if Helm accepts the values, or its message lacks the expected text. The first
    /// line of the file has the text.
    pub(super) fn refuses(&self, values: &Path) -> Result<Option<String>> {
        let text = read(values)?;
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# error: "));
        let expected = expected.with_context(|| format!("{} does not begin with `# error: `", values.display()))?;
        let output = self.output(&["template", "tandem"], &[], values)?;
        let message = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(Some(format!("{} is accepted", values.display())));
        }
        let is_expected = message.contains(expected);
        Ok((!is_expected).then(|| format!("{}: expected {expected:?} in {message}", values.display())))
    }

    fn output(&self, command: &[&str], options: &[&str], values: &Path) -> Result<Output> {
        let mut helm = Command::new(&self.program);
        helm.args(command).arg(&self.chart).args(options).arg("--values").arg(values);
        helm.output().with_context(|| format!("cannot run {}", self.program.display()))
    }

    fn text(&self, output: &Output, values: &Path) -> Result<String> {
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("{}: helm failed: {}{}", values.display(), text, String::from_utf8_lossy(&output.stderr));
        }
        Ok(text.into_owned())
    }
}
