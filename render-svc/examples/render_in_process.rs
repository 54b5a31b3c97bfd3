//! Renders a conversation without a server.
//!
//! `cargo run -p render-svc --example render_in_process -- MODEL "Why is the sky blue?"`

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program

use std::env;

use anyhow::{Context as _, bail};
use render_svc::adapters::Registry;
use render_svc::catalog::{ModelCatalog, Sources};
use render_svc::job::RenderJob;
use render_svc::limits::Limits;
use render_svc::render::{Output, render};
use tandem_common::pb::chat::v1::{ChatMessage, Conversation, chat_message::Content};
use tandem_common::pb::render::v1::RenderRequest;

fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let model = arguments.next().context("no folder or GGUF file")?;
    let question = arguments.next().context("no question")?;

    // A catalog has the compiled template and the tokenizer of each model. It reads no weights.
    let catalog = ModelCatalog::open(Sources { models: vec![model.into()], config: None }, Registry::default())?;

    let message = ChatMessage { role: "user".to_owned(), content: Some(Content::Text(question)), ..Default::default() };
    let conversation = Conversation { messages: vec![message], ..Default::default() };
    let request =
        RenderRequest { conversation: Some(conversation), return_token_ids: true, ..RenderRequest::default() };

    let rendered = render(&catalog.models(), RenderJob::try_from(request)?, &Limits::default())?;
    let Output::Prompt { text, tokens, .. } = rendered.output else {
        bail!("the model takes messages: its template is applied by a processor of images");
    };
    println!("{text}");
    eprintln!("{} tokens, rendered by {:?}", tokens.map_or(0, |tokens| tokens.ids.len()), rendered.resolution.adapter);
    rendered.warnings.iter().for_each(|warning| eprintln!("{}: {}", warning.path, warning.text));
    Ok(())
}
