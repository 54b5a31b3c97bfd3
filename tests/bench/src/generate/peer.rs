//! Another system, in a Python process that measures itself.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;
use serde_json::json;

use super::args::Generate;
use super::python::Python;
use super::run::{Trial, Workload};
use super::score::Score;
use super::variant::Variant;
use crate::machine;

/// The process, with a loaded model.
#[derive(Debug)]
pub(super) struct Peer(Python);

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
    pub(super) async fn start(args: &Generate, variant: &Variant) -> Result<Self> {
        let arguments: [OsString; 3] =
            [args.model_of(variant.family).into(), machine::cores().to_string().into(), variant.argument.into()];
        let mut python = Python::start(args.python_of(variant.family), variant.script, arguments)?;
        let Ready { version } = python.answer().await?;
        println!("{version}");
        Ok(Self(python))
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.0.process()
    }

    /// Runs all prompts as one batch.
    pub(super) async fn run(&mut self, work: &Workload) -> Result<Trial> {
        let Ran { seconds } = self.0.ask(&json!({"run": work.prompts, "tokens": work.tokens})).await?;
        let times: Vec<Duration> = seconds.into_iter().map(Duration::from_secs_f64).collect();
        Ok(Trial { streams: vec![times; work.prompts.len()] })
    }

    /// Returns the probabilities of the ids, without the first.
    pub(super) async fn score(&mut self, ids: &[u32]) -> Result<Score> {
        let Scored { logprobs, likeliest } = self.0.ask(&json!({"score": ids})).await?;
        Ok(Score { logprobs, likeliest })
    }
}
