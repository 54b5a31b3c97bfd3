//! gen-svc as a child process, called over gRPC.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{GenerateRequest, ReturnOptions, Sampling, Stop, TokenIds, TokenInfo};
use tandem_common::process::Service;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::args::{Generate, Mode};
use super::run::{Trial, Workload};
use super::score::Score;
use crate::child;

type Client = GenerateServiceClient<Channel>;

/// A running gen-svc. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Tandem {
    service: Service,
    /// One connection per stream.
    clients: Vec<Client>,
    /// Number of the run, as the cache salt: runs share no cached prefix.
    salt: u64,
}

impl Tandem {
    pub(super) async fn start(args: &Generate, mode: Mode) -> Result<Self> {
        let mut command = command(args, "serve", mode);
        command.args(["--listen", "127.0.0.1:0"]);
        Ok(Self { service: child::start("gen-svc", command).await?, clients: Vec::new(), salt: 0 })
    }

    pub(super) fn process(&self) -> u32 {
        self.service.id()
    }

    /// Runs all prompts at once, each as a stream, without a cached prefix of an earlier run.
    pub(super) async fn run(&mut self, work: &Workload) -> Result<Trial> {
        self.salt += 1;
        self.run_again(work).await
    }

    /// The same, but with the cached prefixes of the previous run.
    pub(super) async fn run_again(&mut self, work: &Workload) -> Result<Trial> {
        while self.clients.len() < work.prompts.len() {
            self.clients.push(GenerateServiceClient::new(child::connect(&self.service).await?));
        }
        let requests: Vec<_> = work.prompts.iter().map(|prompt| self.request(prompt, work.tokens)).collect();
        let mut streams = JoinSet::new();
        let start = Instant::now();
        for (client, request) in self.clients.iter().cloned().zip(requests) {
            streams.spawn(stream(client, request, start));
        }
        let mut run = Trial { streams: Vec::new() };
        while let Some(times) = streams.join_next().await {
            run.streams.push(times??);
        }
        Ok(run)
    }

    /// Returns the probabilities of the ids, without the first.
    pub(super) async fn score(&mut self, ids: &[u32]) -> Result<Score> {
        let mut request = self.request(ids, 1);
        request.return_options = Some(ReturnOptions { prompt_logprobs: Some(1), ..ReturnOptions::default() });
        let client = self.clients.first_mut().context("no connection")?;
        let mut events = client.generate(request).await?.into_inner();
        let mut score = Score::default();
        while let Some(event) = events.message().await? {
            if let Some(Event::PromptLogprobs(part)) = event.event {
                let likeliest = |token: &TokenInfo| token.top_logprobs.first().map_or(token.id, |top| top.id);
                score.logprobs.extend(part.tokens.iter().map(|token| f64::from(token.logprob)));
                score.likeliest.extend(part.tokens.iter().map(likeliest));
            }
        }
        Ok(score)
    }

    fn request(&self, prompt: &[u32], tokens: u32) -> GenerateRequest {
        GenerateRequest {
            input: Some(Input::TokenIds(TokenIds { ids: prompt.to_vec() })),
            sampling: Some(Sampling { temperature: Some(0.0), ..Sampling::default() }),
            stop: Some(Stop { max_new_tokens: Some(tokens), ignore_eos: true, ..Stop::default() }),
            return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
            cache_salt: self.salt.to_string(),
            ..GenerateRequest::default()
        }
    }
}

/// Returns the command of gen-svc with the mode's options, which logs errors only.
pub(super) fn command(args: &Generate, what: &str, mode: Mode) -> Command {
    let options: &[&str] = match mode {
        Mode::Keep => &["--quantize", "keep"],
        Mode::F32 => &["--dtype", "f32"],
        Mode::Bf16 => &["--dtype", "bf16"],
        Mode::Int8 => &["--quantize", "int8"],
        Mode::Int4 => &["--quantize", "int4"],
        Mode::Torch => &["--device", "cpu-torch", "--dtype", "f32"],
    };
    let mut command = Command::new(&args.gen_svc);
    command.args([what, "--log", "error", "--model"]).arg(&args.model).args(options);
    command.args(["--kv-memory-mib", &args.kv_memory_mib.to_string()]);
    command.env_remove("GOMP_SPINCOUNT");
    command
}

/// Returns the arrival time of each token.
async fn stream(mut client: Client, request: GenerateRequest, start: Instant) -> Result<Vec<Duration>> {
    let mut events = client.generate(request).await?.into_inner();
    let mut times = Vec::new();
    while let Some(event) = events.message().await? {
        if let Some(Event::Delta(delta)) = event.event {
            times.extend(delta.token_ids.iter().map(|_| start.elapsed()));
        }
    }
    Ok(times)
}
