//! One task: its request and its answer.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use tandem_common::call::Credentials;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::{Sampling, Stop};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tokio::net::lookup_host;
use tonic::Request;
use tonic::transport::Uri;

/// Different tasks. Two tasks with equal remainders are equal.
pub(crate) const KINDS: usize = 4;

/// Returns the request number `kind`. Even numbers are greedy, the others seeded.
fn request(kind: usize, tokens: u32) -> RunTaskRequest {
    let text = format!("Tell me a long story about number {kind} and its friends.");
    let content = Some(chat::chat_message::Content::Text(text));
    let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
    let is_greedy = kind.is_multiple_of(2);
    RunTaskRequest {
        conversation: Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() }),
        sampling: Some(Sampling {
            temperature: Some(if is_greedy { 0.0 } else { 0.9 }),
            seed: (!is_greedy).then_some(kind as u64),
            ..Sampling::default()
        }),
        stop: Some(Stop { max_new_tokens: Some(tokens), ignore_eos: true, ..Stop::default() }),
        ..RunTaskRequest::default()
    }
}

/// Runs a task over a new connection, and returns the answer's text.
///
/// # Errors
/// The service cannot be reached, the call fails, or the stream lacks its last event.
pub(crate) async fn run(service: &Uri, credentials: &Credentials, kind: usize, tokens: u32) -> Result<String> {
    let address = resolve(service).await?;
    let channel = credentials.endpoint(service, address)?.connect().await.context("cannot connect")?;
    let mut call = Request::new(request(kind, tokens));
    if let Some(token) = credentials.token()? {
        token.add_to(call.metadata_mut());
    }
    let mut events = TaskServiceClient::new(channel).run_task(call).await?.into_inner();
    let (mut text, mut is_finished) = (String::new(), false);
    while let Some(response) = events.message().await? {
        match response.event {
            Some(Event::Delta(delta)) => text += &delta.text,
            Some(Event::Finished(_)) => is_finished = true,
            _ => {}
        }
    }
    if !is_finished {
        bail!("the stream ended without its last event");
    }
    Ok(text)
}

async fn resolve(service: &Uri) -> Result<SocketAddr> {
    let (host, port) = (service.host().unwrap_or_default(), service.port_u16().context("the address has no port")?);
    let mut found = lookup_host((host, port)).await.with_context(|| format!("cannot look up {host}"))?;
    found.next().with_context(|| format!("{host} has no address"))
}
