//! The system's Python, which runs pip and the unpacking script.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

const OLDEST: (u32, u32) = (3, 9);

/// A Python of a supported version.
#[derive(Debug, Clone)]
pub(crate) struct Python {
    program: PathBuf,
}

/// Why a script failed, by the exit statuses that it documents.
#[derive(Debug)]
pub(super) enum Failure {
    /// The disk is full, or a file cannot be written.
    Disk(String),
    /// The package does not have the expected content.
    Unexpected(String),
    /// The package has this SHA-256 instead of the pinned SHA-256.
    Hash(String),
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

    /// Returns the Python at this path.
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

    /// Returns the line that a snippet prints.
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

    /// Runs a script, with its stderr on the terminal.
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
    "set-up needs Python 3.9 or newer with pip to fetch files (your system's packages python3 and python3-pip)";

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
        Some(13) => Err(Failure::Disk(reason)),
        Some(14) => Err(Failure::Unexpected(reason)),
        Some(15) => Err(Failure::Hash(reason)),
        Some(130) | None => bail!("interrupted; repeat the command to continue"),
        Some(code) => bail!("the Python script failed with status {code}; see its messages above"),
    })
}
