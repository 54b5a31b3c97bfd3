//! transformers, in a Python process that measures itself.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::cases::Set;

const SCRIPT: &str = include_str!("transformers.py");

/// The process. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Transformers {
    _child: Child,
    _folder: TempDir,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Transformers {
    pub(crate) async fn start(python: &Path, set: &Set) -> Result<Self> {
        let folder = TempDir::new()?;
        let (script, work) = (folder.path().join("transformers_bench.py"), folder.path().join("cases.json"));
        fs::write(&script, SCRIPT)?;
        fs::write(&work, work_of(set).to_string())?;
        let mut command = Command::new(python);
        command.arg(script).arg(work).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", python.display()))?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        Ok(Self { _child: child, _folder: folder, stdin, stdout })
    }

    async fn ask(&mut self, command: &str) -> Result<Value> {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await?;
        self.stdin.flush().await?;
        let line = self.stdout.next_line().await?.context("Python ended; see its messages above")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Returns the time of each case, none for a case that fails.
    pub(crate) async fn round(&mut self) -> Result<Vec<Option<Duration>>> {
        Ok(times(&self.ask("round").await?))
    }

    /// Returns the time to load a tokenizer and render a first conversation.
    pub(crate) async fn cold(&mut self, folder: &Path) -> Result<Option<Duration>> {
        Ok(time(&self.ask(&format!("cold {}", folder.display())).await?))
    }

    /// Returns the time to render and tokenize each request with the tokenizer in `folder`.
    pub(crate) async fn long(&mut self, folder: &Path, requests: &[String]) -> Result<Vec<Option<Duration>>> {
        let work = self._folder.path().join("long.json");
        fs::write(&work, json!({"folder": folder, "requests": requests}).to_string())?;
        Ok(times(&self.ask(&format!("long {}", work.display())).await?))
    }
}

fn time(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_nanos)
}

fn times(value: &Value) -> Vec<Option<Duration>> {
    value.as_array().into_iter().flatten().map(time).collect()
}

fn work_of(set: &Set) -> Value {
    let model =
        |model: &super::cases::Model| json!({"template": model.template, "special_tokens": model.special_tokens});
    let case = |case: &super::cases::Case| json!({"model": case.model, "request": case.request});
    json!({
        "models": set.models.iter().map(model).collect::<Vec<_>>(),
        "cases": set.cases.iter().map(case).collect::<Vec<_>>(),
    })
}
