//! A Python process that answers each line of JSON with one.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The loop that reads and answers lines.
const LOOP: &str = include_str!("peer.py");

/// The process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Python {
    child: Child,
    _folder: TempDir,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Python {
    /// Starts a script that serves the loop.
    pub(super) fn start<A: AsRef<OsStr>>(
        python: &Path,
        script: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self> {
        let folder = TempDir::new()?;
        // The name must not be the name of a package.
        let path = folder.path().join("measured.py");
        fs::write(&path, script)?;
        fs::write(folder.path().join("peer.py"), LOOP)?;
        let mut command = Command::new(python);
        command.arg(path).args(arguments);
        // Cargo sets it for Tandem. The other systems use their default.
        command.env_remove("GOMP_SPINCOUNT");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", python.display()))?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        Ok(Self { child, _folder: folder, stdin, stdout })
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) async fn ask<T: DeserializeOwned>(&mut self, request: &Value) -> Result<T> {
        self.stdin.write_all(format!("{request}\n").as_bytes()).await?;
        self.stdin.flush().await?;
        self.answer().await
    }

    pub(super) async fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.stdout.next_line().await?.context("Python ended; see its messages above")?;
        let answer: Value = serde_json::from_str(&line)?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(serde_json::from_value(answer)?),
        }
    }
}
