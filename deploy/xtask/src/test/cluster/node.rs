//! The node: a keeper process, and commands in the node's namespaces.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::layout::Layout;

/// A running node. Its keeper ends it when this value is dropped, or this process ends.
#[derive(Debug)]
pub(super) struct Node {
    keeper: Child,
    /// The keeper's standard input, whose end ends the node.
    input: Option<ChildStdin>,
    /// The first process of the namespaces.
    first: String,
    run: PathBuf,
}

impl Node {
    pub(super) fn start(layout: &Layout, programs: &Path, run: &Path) -> Result<Self> {
        let mut command = Command::new("setsid");
        command.arg(layout.root().join("deploy/cluster/keeper.sh")).arg(run).arg(programs);
        command.env("MODELS", layout.models()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn().context("cannot run the cluster's keeper")?;
        let output = keeper.stdout.take().context("the keeper has an output")?;
        let mut first = String::new();
        BufReader::new(output).read_line(&mut first).context("cannot read the keeper's output")?;
        let (input, first) = (keeper.stdin.take(), first.trim().to_owned());
        let node = Self { keeper, input, first, run: run.to_path_buf() };
        if node.first.is_empty() {
            bail!("the node does not start; see the messages above");
        }
        Ok(node)
    }

    /// Returns a command in the node's namespaces, as the cluster's administrator. It is killed after
    /// `limit`.
    pub(super) fn command(&self, limit: Duration, inside: &Command) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first, "--mount", "--net", "--pid", "--ipc", "--uts", "--"]);
        command.args(["timeout", "--kill-after=5", &limit.as_secs().max(1).to_string()]);
        command.arg(inside.get_program()).args(inside.get_args());
        command.env("PATH", "/run/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("KUBECONFIG", "/run/cluster/keys/admin.kubeconfig").env("HOME", "/run");
        command
    }

    /// Returns the last lines of a component's log.
    pub(super) fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.run.join("log").join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Err(error) = self.keeper.wait() {
            eprintln!("cannot wait for the cluster's keeper: {error}");
        }
    }
}
