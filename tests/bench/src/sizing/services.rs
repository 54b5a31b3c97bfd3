//! Both services as child processes, and tasks on them.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tandem_common::pb::chat::v1::{ChatMessage, Conversation, chat_message};
use tandem_common::pb::generate::v1::{ReturnOptions, Sampling, Stop};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::process::Service;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::args::Sizing;
use crate::{child, machine};

/// Both services. Dropping them stops them.
#[derive(Debug)]
pub(super) struct Services {
    render: Service,
    generation: Service,
}

/// The figures of some tasks.
#[derive(Debug)]
pub(super) struct Sample {
    /// Tasks at the same time.
    pub(super) parallel: usize,
    pub(super) tokens_per_second: f64,
    /// Resident bytes of gen-svc.
    pub(super) memory: u64,
    /// Seconds of processor time per task.
    pub(super) generation: f64,
    pub(super) render: f64,
}

impl Services {
    pub(super) async fn start(args: &Sizing, model: &Path) -> Result<Self> {
        let serve = |program: &Path, flag: &str| {
            let mut command = Command::new(program);
            command.args(["serve", "--listen", "127.0.0.1:0", "--log", "error", flag]).arg(model);
            command
        };
        let mut command = serve(&args.gen_svc, "--model");
        command.args(["--quantize", &args.quantize, "--threads", &args.threads.to_string()]);
        command.args(["--kv-memory-mib", &args.kv_memory_mib.to_string()]).env_remove("GOMP_SPINCOUNT");
        let generation = child::start("gen-svc", command).await?;
        let mut command = serve(&args.render_svc, "--models");
        command.args(["--generate", &format!("http://{}", generation.address())]);
        Ok(Self { render: child::start("render-svc", command).await?, generation })
    }

    /// Runs tasks, `parallel` at the same time.
    pub(super) async fn run(&self, tasks: usize, parallel: usize, tokens: u32) -> Result<Sample> {
        let (next, mut clients) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        let (before, start) = (self.processor_times(), Instant::now());
        for _ in 0..parallel {
            let client = TaskServiceClient::new(child::connect(&self.render).await?);
            clients.spawn(worker(client, Arc::clone(&next), tasks, tokens));
        }
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        let (took, after) = (start.elapsed(), self.processor_times());
        let per_task = |at: usize| (after[at] - before[at]).as_secs_f64() / tasks as f64;
        Ok(Sample {
            parallel,
            tokens_per_second: tasks as f64 * f64::from(tokens) / took.as_secs_f64(),
            memory: machine::resident(self.generation.id()).context("gen-svc has ended")?,
            generation: per_task(0),
            render: per_task(1),
        })
    }

    /// Returns the processor times of gen-svc and render-svc.
    fn processor_times(&self) -> [Duration; 2] {
        [&self.generation, &self.render].map(|service| machine::cpu_time(service.id()).unwrap_or_default())
    }
}

/// Runs one task after the other until there are enough.
async fn worker(
    mut client: TaskServiceClient<Channel>,
    next: Arc<AtomicUsize>,
    tasks: usize,
    tokens: u32,
) -> Result<()> {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= tasks {
            return Ok(());
        }
        let mut events = client.run_task(request(number, tokens)).await?.into_inner();
        let mut received = 0;
        while let Some(response) = events.message().await? {
            if let Some(Event::Delta(delta)) = response.event {
                received += delta.token_ids.len();
            }
        }
        ensure!(received == tokens as usize, "an answer of {received} tokens, not {tokens}");
    }
}

fn request(number: usize, tokens: u32) -> RunTaskRequest {
    let text = format!("Tell me a long story about the number {number} and all of its friends.");
    let content = Some(chat_message::Content::Text(text));
    let message = ChatMessage { role: "user".to_owned(), content, ..ChatMessage::default() };
    RunTaskRequest {
        conversation: Some(Conversation { messages: vec![message], ..Conversation::default() }),
        sampling: Some(Sampling { temperature: Some(0.0), ..Sampling::default() }),
        stop: Some(Stop { max_new_tokens: Some(tokens), ignore_eos: true, ..Stop::default() }),
        return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
        ..RunTaskRequest::default()
    }
}
