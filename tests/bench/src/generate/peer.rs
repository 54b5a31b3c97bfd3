//! llama.cpp or transformers, in a Python process that measures itself.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::args::{Family, Generate};
use super::run::{Trial, Workload};
use super::score::Score;
use crate::machine;

const LOOP: &str = include_str!("peer.py");
const LLAMA: &str = include_str!("llama.py");
const TORCH: &str = include_str!("torch.py");

/// The process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Peer {
    child: Child,
    _folder: TempDir,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

#[derive(Deserialize)]
struct Ready {
    version: String,
}

#[derive(Deserialize)]
struct Ran {
    seconds: Vec<f64>,
}

#[derive(Deserialize)]
struct Scored {
    logprobs: Vec<f64>,
    likeliest: Vec<u32>,
}

impl Peer {
    pub(super) async fn start(args: &Generate, family: Family, variant: &str) -> Result<Self> {
        let folder = TempDir::new()?;
        // The name must not be the name of a package.
        let script = folder.path().join("measured.py");
        fs::write(&script, if family == Family::LlamaCpp { LLAMA } else { TORCH })?;
        fs::write(folder.path().join("peer.py"), LOOP)?;
        let mut command = Command::new(&args.python);
        command.arg(script).arg(&args.model).args([&machine::cores().to_string(), variant]);
        // Cargo sets it for Tandem. The other systems use their default.
        command.env_remove("GOMP_SPINCOUNT");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", args.python.display()))?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let mut peer = Self { child, _folder: folder, stdin, stdout };
        let Ready { version } = peer.answer().await?;
        println!("{version}");
        Ok(peer)
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Runs all prompts as one batch.
    pub(super) async fn run(&mut self, work: &Workload) -> Result<Trial> {
        let Ran { seconds } = self.ask(&json!({"run": work.prompts, "tokens": work.tokens})).await?;
        let times: Vec<Duration> = seconds.into_iter().map(Duration::from_secs_f64).collect();
        Ok(Trial { streams: vec![times; work.prompts.len()] })
    }

    /// Returns the probabilities of the ids, without the first.
    pub(super) async fn score(&mut self, ids: &[u32]) -> Result<Score> {
        let Scored { logprobs, likeliest } = self.ask(&json!({"score": ids})).await?;
        Ok(Score { logprobs, likeliest })
    }

    async fn ask<T: DeserializeOwned>(&mut self, request: &Value) -> Result<T> {
        self.stdin.write_all(format!("{request}\n").as_bytes()).await?;
        self.stdin.flush().await?;
        self.answer().await
    }

    async fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.stdout.next_line().await?.context("Python ended; see its messages above")?;
        let answer: Value = serde_json::from_str(&line)?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(serde_json::from_value(answer)?),
        }
    }
}
