//! Asks a running render-svc, which generates with gen-svc, and prints the answer as it arrives.
//!
//! `cargo run -p render-svc --example run_task -- http://127.0.0.1:50051 "Why is the sky blue?"`

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program

use std::env;
use std::io::{Write as _, stdout};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tandem_common::pb::chat::v1::{ChatMessage, Conversation, chat_message::Content};
use tandem_common::pb::generate::v1::Stop;
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::{RunTaskRequest, task_service_client::TaskServiceClient};
use tonic::{Request, Status};
use tonic_types::StatusExt as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().context("no address")?;
    let question = arguments.next().context("no question")?;

    let message = ChatMessage { role: "user".to_owned(), content: Some(Content::Text(question)), ..Default::default() };
    let mut request = Request::new(RunTaskRequest {
        conversation: Some(Conversation { messages: vec![message], ..Default::default() }),
        stop: Some(Stop { max_new_tokens: Some(200), ..Stop::default() }),
        ..RunTaskRequest::default()
    });
    request.set_timeout(Duration::from_secs(60)); // the answer ends before it, with the reason DEADLINE

    let mut client = TaskServiceClient::connect(address).await?.max_decoding_message_size(264 << 20);
    let mut events = client.run_task(request).await.map_err(explained)?.into_inner();
    while let Some(response) = events.message().await.map_err(explained)? {
        match response.event {
            Some(Event::Delta(delta)) if !delta.reasoning => {
                print!("{}", delta.text);
                stdout().flush()?;
            }
            Some(Event::Finished(answer)) => {
                let reason = answer.finish.unwrap_or_default().reason();
                eprintln!("\n{}, {} tokens", reason.as_str_name(), answer.usage.unwrap_or_default().completion_tokens);
                return Ok(());
            }
            _ => {} // how the prompt was rendered, the parameters in force, progress
        }
    }
    bail!("the stream ended without its last event")
}

/// Returns an error with the reason and the field that the service names.
fn explained(status: Status) -> anyhow::Error {
    let details = status.get_error_details();
    let reason = details.error_info().map_or("", |info| &info.reason);
    let field = details.bad_request().and_then(|request| request.field_violations.first());
    let field = field.map_or("", |violation| &violation.field);
    anyhow::anyhow!("{reason} {field}: {}", status.message())
}
