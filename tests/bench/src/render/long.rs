//! A conversation of about 72,000 tokens, rendered and tokenized: as a new one, and as the next
//! turn of an earlier one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tandem_common::pb::chat::v1::{ChatMessage, Conversation, chat_message};
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_response::Output;

use super::grpc::message;
use super::process::{self, Service};
use super::transformers::Transformers;
use crate::stats::{Times, ratio};

const TOKENS: usize = 72_000;
const MODEL: &str = "qwen3";

pub(crate) async fn measure(tokenizers: &Path, peer: Option<&mut Transformers>, how_long: Duration) -> Result<()> {
    let folder = tokenizers.join(MODEL);
    let service = Service::start(&folder).await?;
    let messages = Arc::new(sized(&service).await?);
    settle(&service, &messages).await?;
    let count = tokens(&service, &messages).await?;
    println!(
        "\nlong prompts over gRPC: {count} tokens in {} messages, {MODEL}'s tokenizer, ids returned",
        messages.len()
    );
    for clients in [1, 8] {
        let messages = Arc::clone(&messages);
        println!("  a conversation never seen before");
        let make = move |client: usize, n: usize| request(fresh(&messages, client * 1_000_000 + n));
        process::report(clients, process::load(&service, clients, how_long, make).await?);
    }
    for clients in [1, 8] {
        let messages = Arc::clone(&messages);
        println!("  the next turn of one seen before");
        let make = move |client: usize, n: usize| request(next_turn(&messages, client * 1_000_000 + n));
        process::report(clients, process::load(&service, clients, how_long, make).await?);
    }
    if let Some(bytes) = service.memory() {
        println!("  the server's memory afterwards: {} MB", bytes / 1_000_000);
    }
    if let Some(peer) = peer {
        compare(&service, peer, &folder, &messages).await?;
    }
    Ok(())
}

/// Waits until the service has built its fast encoder in the background.
async fn settle(service: &Service, messages: &[ChatMessage]) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let sent = Instant::now();
        tokens(service, messages).await?;
        if sent.elapsed() < Duration::from_millis(30) {
            break;
        }
    }
    Ok(())
}

/// Measures both systems with one client, on the same new conversations.
async fn compare(service: &Service, peer: &mut Transformers, folder: &Path, messages: &[ChatMessage]) -> Result<()> {
    let conversations: Vec<Vec<ChatMessage>> = (0..10).map(|i| fresh(messages, 900_000_000 + i)).collect();
    let texts: Vec<String> = conversations.iter().map(|messages| json_of(messages)).collect();
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    let mut client = service.client().await?;
    for conversation in conversations {
        let start = Instant::now();
        client.render(request(conversation)).await?;
        ours.add(start.elapsed());
    }
    peer.long(folder, &texts).await?.into_iter().flatten().for_each(|time| theirs.add(time));
    println!("  one client, new conversations: tandem over gRPC {}", ours.summary());
    println!("  transformers in its process {}", theirs.summary());
    println!("  transformers takes {:.1} × tandem's median", ratio(theirs.median(), ours.median()));
    Ok(())
}

fn json_of(messages: &[ChatMessage]) -> String {
    let text = |message: &ChatMessage| match &message.content {
        Some(chat_message::Content::Text(text)) => text.clone(),
        _ => String::new(),
    };
    let messages: Vec<_> = messages.iter().map(|m| json!({"role": m.role, "content": text(m)})).collect();
    json!({"messages": messages}).to_string()
}

/// Returns turns of prose, code and figures with enough tokens together.
async fn sized(service: &Service) -> Result<Vec<ChatMessage>> {
    let sample: Vec<ChatMessage> = (0..20).map(turn).collect();
    let per_turn = tokens(service, &sample).await? / sample.len();
    Ok((0..TOKENS / per_turn.max(1)).map(turn).collect())
}

fn turn(i: usize) -> ChatMessage {
    let role = if i.is_multiple_of(2) { "user" } else { "assistant" };
    let mut text = String::new();
    for j in 0..12 {
        let n = i * 37 + j * 101;
        text.push_str(&format!(
            "Paragraph {n}: the {} of the {} is {}.{:03} per cent, ",
            word(n),
            word(n / 3),
            n % 97,
            n % 1000
        ));
        text.push_str(&format!("which {} explains in chapter {}.\n", word(n / 7), n % 40));
        text.push_str(&format!("    let {}_{} = compute(&{}, {n});\n", word(n), j, word(n / 5)));
    }
    message(role, text)
}

fn word(n: usize) -> &'static str {
    const WORDS: [&str; 16] = [
        "temperature",
        "river",
        "committee",
        "naïveté",
        "lattice",
        "harbour",
        "proposition",
        "Überschrift",
        "violin",
        "merchant",
        "syntax",
        "日本語",
        "orchard",
        "velocity",
        "parliament",
        "mirror",
    ];
    WORDS[n % WORDS.len()]
}

/// Returns the conversation with a new prefix of every message, so that no cache has any of it.
fn fresh(messages: &[ChatMessage], number: usize) -> Vec<ChatMessage> {
    let renew = |(i, message): (usize, &ChatMessage)| match &message.content {
        Some(chat_message::Content::Text(text)) => {
            super::grpc::message(&message.role, format!("({number}.{i}) {text}"))
        }
        _ => message.clone(),
    };
    messages.iter().enumerate().map(renew).collect()
}

/// Returns the conversation with two more messages.
fn next_turn(messages: &[ChatMessage], number: usize) -> Vec<ChatMessage> {
    let more = [message("assistant", format!("Answer {number}.")), message("user", format!("Question {number}?"))];
    messages.iter().cloned().chain(more).collect()
}

fn request(messages: Vec<ChatMessage>) -> RenderRequest {
    let conversation = Some(Conversation { messages, ..Conversation::default() });
    RenderRequest { conversation, return_token_ids: true, ..RenderRequest::default() }
}

async fn tokens(service: &Service, messages: &[ChatMessage]) -> Result<usize> {
    let response = service.client().await?.render(request(messages.to_vec())).await?.into_inner();
    match response.output.context("no output")? {
        Output::Prompt(prompt) => Ok(prompt.token_ids.len()),
        Output::HfMessages(_) => anyhow::bail!("no prompt"),
    }
}
