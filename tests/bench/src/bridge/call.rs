//! One request over either route: the same ids, sampling and number of tokens.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{GenerateRequest, GenerateResponse, ReturnOptions, Sampling, Stop, TokenIds};
use tonic::Streaming;
use tonic::transport::Channel;

use super::http::Connection;

/// The end token of the default model, which no answer may have.
const END: u32 = 2;
const NEVER: f32 = -100.0;

/// The way of a request to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Direct,
    Bridge,
}

impl Route {
    /// Returns both routes. Each is first in every other round.
    pub(super) fn in_turn(round: usize) -> [Self; 2] {
        if round.is_multiple_of(2) { [Self::Direct, Self::Bridge] } else { [Self::Bridge, Self::Direct] }
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) enum Caller {
    Direct(Connection),
    Bridge(GenerateServiceClient<Channel>),
}

/// A running request. Dropping it cancels it.
#[derive(Debug)]
pub(super) enum Answer {
    Direct {
        connection: Connection,
        /// The tokens so far.
        read: usize,
    },
    Bridge(Box<Streaming<GenerateResponse>>),
}

impl Caller {
    /// Sends a greedy request that uses no cached prefix.
    pub(super) async fn send(self, prompt: &[u32], tokens: u32) -> Result<Answer> {
        Ok(match self {
            Self::Direct(mut connection) => {
                connection.post("/completion", &body(prompt, tokens)).await?;
                Answer::Direct { connection, read: 0 }
            }
            Self::Bridge(mut client) => {
                Answer::Bridge(Box::new(client.generate(request(prompt, tokens)).await?.into_inner()))
            }
        })
    }

    /// Returns the times of the tokens from now on.
    pub(super) async fn times(self, prompt: &[u32], tokens: u32) -> Result<Vec<Duration>> {
        let (start, tokens) = (Instant::now(), tokens as usize);
        let mut answer = self.send(prompt, tokens as u32).await?;
        let mut times = Vec::new();
        while times.len() < tokens {
            let count = answer.next().await?;
            times.extend(std::iter::repeat_n(start.elapsed(), count));
        }
        Ok(times)
    }
}

impl Answer {
    /// Returns the number of tokens of the next event.
    pub(super) async fn next(&mut self) -> Result<usize> {
        match self {
            Self::Direct { connection, read } => {
                let before = std::mem::replace(read, connection.event().await?.tokens_predicted.max(*read));
                Ok(*read - before)
            }
            Self::Bridge(stream) => match stream.message().await?.context("the answer is too short")?.event {
                Some(Event::Delta(delta)) => Ok(delta.token_ids.len()),
                _ => Ok(0),
            },
        }
    }
}

/// Returns the body of a direct request, with the samplers that the bridge asks for.
fn body(prompt: &[u32], tokens: u32) -> String {
    let body = json!({
        "prompt": prompt,
        "n_predict": tokens,
        "stream": true,
        "return_tokens": true,
        "cache_prompt": false,
        "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p", "typ_p"],
        "temperature": 0,
        "top_k": 0,
        "top_p": 1,
        "min_p": 0,
        "logit_bias": [[END, NEVER]],
    });
    body.to_string()
}

fn request(prompt: &[u32], tokens: u32) -> GenerateRequest {
    let sampling = Sampling {
        temperature: Some(0.0),
        top_k: Some(0),
        top_p: Some(1.0),
        min_p: Some(0.0),
        logit_bias: [(END, NEVER)].into(),
        ..Sampling::default()
    };
    GenerateRequest {
        input: Some(Input::TokenIds(TokenIds { ids: prompt.to_vec() })),
        sampling: Some(sampling),
        stop: Some(Stop { max_new_tokens: Some(tokens), ..Stop::default() }),
        return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
        // The bridge then asks for no cached prefix.
        cache_salt: "bench".to_owned(),
        ..GenerateRequest::default()
    }
}
