//! `gen-svc generate --jsonl`: the same requests through the same engine, without gRPC.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::args::{Generate, Mode};
use super::run::Workload;
use super::tandem;

/// Runs of requests without a server, each run in a new gen-svc process.
#[derive(Debug)]
pub(super) struct Offline<'a> {
    args: &'a Generate,
    mode: Mode,
}

impl<'a> Offline<'a> {
    pub(super) fn new(args: &'a Generate, mode: Mode) -> Self {
        Self { args, mode }
    }

    /// Returns the tokens per second between sending the requests and the last answer. The time to
    /// load the model is excluded.
    pub(super) async fn throughput(&self, work: &Workload) -> Result<f64> {
        let patience = Duration::from_secs(self.args.patience);
        tokio::time::timeout(patience, self.run(work)).await.context("no answer in time")?
    }

    async fn run(&self, work: &Workload) -> Result<f64> {
        let batch = work.prompts.len();
        let mut command = Command::from(tandem::command(self.args, "generate", self.mode));
        command.args(["--jsonl", "--max-running", &batch.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        let mut answers = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        // One more than the batch size, so that the first answer arrives before gen-svc waits for
        // input.
        let warm_up = line(&[1], 1).repeat(batch + 1);
        stdin.write_all(warm_up.as_bytes()).await?;
        answers.next_line().await?.context("gen-svc ended; see its messages above")?;
        tokio::time::sleep(Duration::from_millis(500)).await; // The other answers are complete by then.
        let requests: String = work.prompts.iter().map(|prompt| line(prompt, work.tokens)).collect();
        let start = Instant::now();
        stdin.write_all(requests.as_bytes()).await?;
        drop(stdin);
        let (mut tokens, mut end) = (0, Duration::ZERO);
        while let Some(answer) = answers.next_line().await? {
            let answer: Value = serde_json::from_str(&answer)?;
            let generated = answer["token_ids"].as_array().context("a request failed")?.len();
            if generated > 1 {
                (tokens, end) = (tokens + generated, start.elapsed());
            }
        }
        child.wait().await?;
        Ok(tokens as f64 / end.as_secs_f64())
    }
}

fn line(prompt: &[u32], tokens: u32) -> String {
    let request = json!({"token_ids": prompt, "max_new_tokens": tokens, "temperature": 0, "ignore_eos": true});
    format!("{request}\n")
}
