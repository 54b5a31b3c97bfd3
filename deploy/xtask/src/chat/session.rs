//! A conversation with render-svc: its history, its turns.

use std::process::ExitCode;

use anyhow::{Context, Result};
use tandem_common::pb::chat::v1::{Conversation, Message, message::Content};
use tandem_common::pb::generate::v1::{Sampling, Stop};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tokio::signal::unix::{Signal, SignalKind};
use tonic::transport::Channel;

use super::Wishes;
use super::answer::{self, Answer, Refusal};
use super::input::Input;

/// How a chat ended, when not by an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Signal(SignalKind),
}

impl End {
    pub(super) fn exit_code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            // What shells expect of a program that a signal ended.
            Self::Signal(kind) => ExitCode::from(128_u8.saturating_add(u8::try_from(kind.as_raw_value()).unwrap_or(0))),
        }
    }
}

const INTERRUPTED: End = End::Signal(SignalKind::interrupt());

/// A conversation under way.
#[derive(Debug)]
pub(super) struct Session {
    client: TaskServiceClient<Channel>,
    messages: Vec<Message>,
    sampling: Sampling,
    stop: Stop,
}

impl Session {
    pub(super) async fn connect(address: &str, wishes: Wishes) -> Result<Self> {
        let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let client =
            TaskServiceClient::connect(url).await.with_context(|| format!("cannot reach render-svc at {address}"))?;
        Ok(Self {
            client,
            messages: wishes.system.map(|text| message("system", text)).into_iter().collect(),
            sampling: Sampling {
                temperature: wishes.temperature,
                top_p: wishes.top_p,
                seed: wishes.seed,
                ..Sampling::default()
            },
            stop: Stop { max_new_tokens: Some(wishes.max_new_tokens), ..Stop::default() },
        })
    }

    /// Turn after turn until the input ends.
    pub(super) async fn converse(&mut self, interrupts: &mut Signal) -> Result<End> {
        let mut input = Input::open();
        if input.is_terminal {
            eprintln!("Type a message. Ctrl-C cancels an answer; /exit or Ctrl-D ends.");
        }
        loop {
            let line = tokio::select! {
                line = input.next() => line.context("cannot read stdin")?,
                _ = interrupts.recv() => return Ok(INTERRUPTED),
            };
            let Some(line) = line else { return Ok(End::Done) };
            match self.turn(line, interrupts).await {
                // Someone is there to try something else.
                Err(error) if input.is_terminal && answer::is_refusal(&error) => eprintln!("error: {error:#}"),
                Ok(_) if input.is_terminal => {}
                Ok(End::Done) => {}
                outcome => return outcome,
            }
        }
    }

    /// One question, one answer. Both are in the history afterwards, or neither if nothing was answered.
    pub(super) async fn turn(&mut self, text: String, interrupts: &mut Signal) -> Result<End> {
        self.messages.push(message("user", text));
        let request = self.request();
        let mut answer = Answer::new();
        let outcome = tokio::select! {
            outcome = stream(&mut self.client, request, &mut answer) => outcome.map(|()| End::Done),
            _ = interrupts.recv() => Ok(INTERRUPTED),
        };
        answer.close()?;
        if outcome.is_ok() {
            eprintln!("[{}]", answer.summary());
        }
        match answer.into_message() {
            Some(message) => self.messages.push(message),
            None => drop(self.messages.pop()),
        }
        outcome
    }

    fn request(&self) -> RunTaskRequest {
        RunTaskRequest {
            conversation: Some(Conversation { messages: self.messages.clone(), ..Conversation::default() }),
            sampling: Some(self.sampling.clone()),
            stop: Some(self.stop.clone()),
            ..RunTaskRequest::default()
        }
    }
}

/// Dropping this future hangs up, which cancels the work in both services.
async fn stream(client: &mut TaskServiceClient<Channel>, request: RunTaskRequest, answer: &mut Answer) -> Result<()> {
    let response = client.run_task(request).await.map_err(Refusal)?;
    answer.print(&mut response.into_inner()).await
}

fn message(role: &str, text: String) -> Message {
    Message { role: role.to_owned(), content: Some(Content::Text(text)), ..Message::default() }
}
