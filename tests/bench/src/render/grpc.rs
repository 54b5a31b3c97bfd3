//! Short conversations over gRPC, with the clients on the same machine.

use std::time::Duration;

use anyhow::Result;
use tandem_common::pb::chat::v1::{ChatMessage, Conversation, chat_message};
use tandem_common::pb::render::v1::RenderRequest;

use super::cases::Set;
use super::process::{self, Service};

pub(crate) fn message(role: &str, text: impl Into<String>) -> ChatMessage {
    ChatMessage {
        role: role.to_owned(),
        content: Some(chat_message::Content::Text(text.into())),
        ..ChatMessage::default()
    }
}

/// Returns a conversation of eight messages, about 2 kB.
fn conversation(seed: usize) -> Conversation {
    let mut messages = vec![message("system", "You are a helpful assistant. Answer briefly and name your sources.")];
    for turn in 0..4 {
        messages.push(message(
            "user",
            format!("Question {seed}.{turn}: {}", "what follows from that, and why? ".repeat(6)),
        ));
        messages.push(message(
            "assistant",
            format!("Answer {turn}: {}", "it follows from what was said above. ".repeat(6)),
        ));
    }
    messages.pop();
    Conversation { messages, ..Conversation::default() }
}

pub(crate) async fn measure(set: &Set, how_long: Duration) -> Result<()> {
    let model = usable(set).await?;
    println!("\nover gRPC: a conversation of 8 messages and 2 kB, text only, server and clients on the same cores");
    let service = Service::start(&set.folder.path().join(&model)).await?;
    for clients in [1, 8, 64] {
        let make = |client: usize, n: usize| RenderRequest {
            conversation: Some(conversation(client * 1_000_000 + n)),
            ..RenderRequest::default()
        };
        process::report(clients, process::load(&service, clients, how_long, make).await?);
    }
    if let Some(bytes) = service.memory() {
        println!("  the server's memory afterwards: {} MB", bytes / 1_000_000);
    }
    Ok(())
}

/// Returns the first model that renders the conversation.
async fn usable(set: &Set) -> Result<String> {
    for i in 0..set.models.len() {
        let service = Service::start(&set.folder.path().join(i.to_string())).await;
        let Ok(service) = service else { continue };
        let request = RenderRequest { conversation: Some(conversation(0)), ..RenderRequest::default() };
        if service.client().await?.render(request).await.is_ok() {
            return Ok(i.to_string());
        }
    }
    anyhow::bail!("no model renders the conversation")
}
