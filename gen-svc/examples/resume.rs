//! Resumes an output of a running gen-svc, as a client does after the replica that began it is lost.
//!
//! `cargo run -p gen-svc --example resume -- http://127.0.0.1:50051 http://127.0.0.1:50052 "Once upon a time"`
//!
//! The first address is render-svc's, which makes the token ids of the text.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program

use std::env;

use anyhow::{Context as _, ensure};
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{
    GenerateRequest, Resume, ReturnOptions, Sampling, Stop, TokenIds, generate_request::Input,
};
use tandem_common::pb::render::v1::TokenizeRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tonic::transport::Channel;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let mut renderer = RenderServiceClient::connect(arguments.next().context("no address of render-svc")?).await?;
    let mut client = GenerateServiceClient::connect(arguments.next().context("no address of gen-svc")?).await?;
    let text = arguments.next().context("no prompt")?;

    let request = TokenizeRequest { text, ..TokenizeRequest::default() };
    let prompt = renderer.tokenize(request).await?.into_inner().token_ids;
    let request = GenerateRequest {
        input: Some(Input::TokenIds(TokenIds { ids: prompt.clone() })),
        // With the seed and the ids of the tokens, any replica of the model continues the same output.
        sampling: Some(Sampling { seed: Some(7), ..Sampling::default() }),
        stop: Some(Stop { max_new_tokens: Some(40), ..Stop::default() }),
        return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
        ..GenerateRequest::default()
    };
    let (whole, ids) = output(&mut client, request.clone(), usize::MAX).await?;
    let (begun, known) = output(&mut client, request.clone(), 10).await?;

    let resumed = GenerateRequest {
        input: Some(Input::TokenIds(TokenIds { ids: [prompt, known.clone()].concat() })),
        resume: Some(Resume { generated_tokens: known.len() as u32, ..Resume::default() }),
        ..request
    };
    let (rest, more) = output(&mut client, resumed, usize::MAX).await?;
    println!("{begun}|{rest}");
    ensure!([known, more].concat() == ids && begun + &rest == whole, "the resumed output differs");
    Ok(())
}

/// Returns the text and the token ids of an output. Cancels the call after the delta that has token `limit`.
async fn output(
    client: &mut GenerateServiceClient<Channel>,
    request: GenerateRequest,
    limit: usize,
) -> anyhow::Result<(String, Vec<u32>)> {
    let (mut text, mut ids) = (String::new(), Vec::new());
    let mut events = client.generate(request).await?.into_inner();
    while let Some(response) = events.message().await? {
        let Some(Event::Delta(delta)) = response.event else { continue };
        text += &delta.text;
        ids.extend(delta.token_ids);
        if ids.len() >= limit {
            break;
        }
    }
    Ok((text, ids))
}
