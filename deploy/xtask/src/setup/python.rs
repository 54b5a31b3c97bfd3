//! The Python that set-up runs its scripts with, and what they report.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

const OLDEST: (u32, u32) = (3, 9);

/// A Python that is new enough.
#[derive(Debug, Clone)]
pub(crate) struct Python {
    program: PathBuf,
}

/// Why a script did not do its work. The statuses are those that the scripts list.
#[derive(Debug)]
pub(super) enum Failure {
    /// The package index must be asked through pip.
    AskPip(String),
    Network(String),
    Disk(String),
    Unexpected(String),
}

impl Python {
    pub(crate) fn find() -> Result<Self> {
        let found = ["python3", "python"].into_iter().find_map(|name| Some((name, version(name)?)));
        match found {
            Some((name, version)) if version >= OLDEST => Ok(Self { program: name.into() }),
            Some((name, (major, minor))) => bail!("{name} is Python {major}.{minor}; {NEEDED}"),
            None => bail!("there is no python3 on the PATH; {NEEDED}"),
        }
    }

    /// A Python at a known place.
    pub(crate) fn at(program: PathBuf) -> Self {
        Self { program }
    }

    pub(crate) fn command(&self) -> Command {
        Command::new(&self.program)
    }

    pub(crate) fn pip(&self) -> Command {
        let mut command = self.command();
        command.args(["-m", "pip", "--disable-pip-version-check"]);
        command
    }

    pub(crate) fn require_pip(&self) -> Result<()> {
        let has_pip = self.pip().arg("--version").output().is_ok_and(|output| output.status.success());
        if !has_pip {
            bail!(
                "{0} has no pip; install it with your system's packages (python3-pip) or with `{0} -m ensurepip --user`",
                self.program.display()
            );
        }
        Ok(())
    }

    /// Evaluates a snippet that prints one line.
    pub(crate) fn ask(&self, snippet: &str) -> Result<String> {
        let output = self
            .command()
            .args(["-c", snippet])
            .output()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        if !output.status.success() {
            bail!("{} failed: {}", self.program.display(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Runs a script of ours; its progress goes straight to the terminal.
    pub(super) fn script<A: AsRef<OsStr>>(
        &self,
        script: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Result<(), Failure>> {
        let mut command = self.command();
        command.args(["-c", script]).args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().with_context(|| format!("cannot run {}", self.program.display()))?;
        outcome(&output)
    }
}

const NEEDED: &str =
    "set-up needs Python 3.9 or newer with pip, only to fetch files (your system's packages python3 and python3-pip)";

fn version(program: &str) -> Option<(u32, u32)> {
    let output = Command::new(program).args(["-c", "import sys; print(*sys.version_info[:2])"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().split_once(' ')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn outcome(output: &Output) -> Result<Result<(), Failure>> {
    let reason = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(match output.status.code() {
        Some(0) => Ok(()),
        Some(10) => Err(Failure::AskPip(reason)),
        Some(11) => Err(Failure::Network(reason)),
        Some(13) => Err(Failure::Disk(reason)),
        Some(14) => Err(Failure::Unexpected(reason)),
        Some(130) | None => bail!("interrupted; run the command again and it goes on from here"),
        Some(code) => bail!("the Python script ended with status {code}; what it printed above says why"),
    })
}
