//! A conversation with render-svc: its history and its turns.

use anyhow::{Context, Result};
use tandem_chat_args::Generation;
use tandem_common::pb::chat::v1::{Conversation, Message, message::Content};
use tandem_common::pb::generate::v1::{Sampling, Stop};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tokio::signal::unix::Signal;
use tonic::transport::Channel;

use crate::answer::{self, Answer, Refusal};
use crate::end::End;
use crate::input::Input;

/// A conversation.
#[derive(Debug)]
pub(crate) struct Session {
    client: TaskServiceClient<Channel>,
    messages: Vec<Message>,
    sampling: Sampling,
    stop: Stop,
}

impl Session {
    pub(crate) async fn connect(address: &str, generation: Generation) -> Result<Self> {
        let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let client =
            TaskServiceClient::connect(url).await.with_context(|| format!("cannot reach render-svc at {address}"))?;
        Ok(Self {
            client,
            messages: generation.system.map(|text| message("system", text)).into_iter().collect(),
            sampling: Sampling {
                temperature: generation.temperature,
                top_p: generation.top_p,
                seed: generation.seed,
                ..Sampling::default()
            },
            stop: Stop { max_new_tokens: Some(generation.max_new_tokens), ..Stop::default() },
        })
    }

    /// Runs one turn per line until the input ends.
    pub(crate) async fn converse(&mut self, interrupts: &mut Signal) -> Result<End> {
        let mut input = Input::open();
        if input.is_terminal {
            eprintln!("Type a message. Ctrl-C cancels an answer; /exit or Ctrl-D ends.");
        }
        loop {
            let line = tokio::select! {
                line = input.next() => line.context("cannot read stdin")?,
                _ = interrupts.recv() => return Ok(End::INTERRUPTED),
            };
            let Some(line) = line else { return Ok(End::Done) };
            match self.turn(line, interrupts).await {
                // The user at the terminal can try another message.
                Err(error) if input.is_terminal && answer::is_refusal(&error) => eprintln!("error: {error:#}"),
                Ok(_) if input.is_terminal => {}
                Ok(End::Done) => {}
                outcome => return outcome,
            }
        }
    }

    /// Runs one turn. The history then has the question and the answer, or neither if the answer is
    /// empty.
    pub(crate) async fn turn(&mut self, text: String, interrupts: &mut Signal) -> Result<End> {
        self.messages.push(message("user", text));
        let request = self.request();
        let mut answer = Answer::new();
        let outcome = tokio::select! {
            outcome = stream(&mut self.client, request, &mut answer) => outcome.map(|()| End::Done),
            _ = interrupts.recv() => Ok(End::INTERRUPTED),
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

/// Prints one answer. Dropping this future cancels the request in both services.
async fn stream(client: &mut TaskServiceClient<Channel>, request: RunTaskRequest, answer: &mut Answer) -> Result<()> {
    let response = client.run_task(request).await.map_err(Refusal)?;
    answer.print(&mut response.into_inner()).await
}

fn message(role: &str, text: String) -> Message {
    Message { role: role.to_owned(), content: Some(Content::Text(text)), ..Message::default() }
}
