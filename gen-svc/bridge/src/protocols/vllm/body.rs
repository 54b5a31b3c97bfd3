//! The bodies of requests and answers.

use serde_json::{Map, Value, json};
use tandem_core::sampling::{Chosen, Logprobs};

use crate::call::{Call, CallEnd, CallError, plain, with_top};
use crate::json::{self, contradiction};
use crate::lark::lark;

/// Seeds are 64-bit signed integers.
const SEED_BITS: u32 = 63;
/// A bias that keeps a token from being chosen. Larger ones are cut to it.
const BAN: f32 = -100.0;
/// The mark before the id of a token, with `return_tokens_as_token_ids`.
const TOKEN_ID: &str = "token_id:";

/// Returns the body of a request to `/inference/v1/generate`.
pub(super) fn of_generate(call: &Call, stream: bool) -> Value {
    let mut sampling = sampling(call, stream);
    // Without it, the server computes the text of each token.
    sampling.insert("detokenize".to_owned(), false.into());
    let mut body = json!({
        "token_ids": call.ids,
        "stream": stream,
        "output_mode": "tokens",
        "priority": -i64::from(call.priority),
        "sampling_params": sampling,
    });
    if call.grammar.is_some() {
        // A server with a parser of reasoning would wait for the end of reasoning.
        body["reasoning_ended"] = true.into();
    }
    complete(&mut body, call, stream);
    body
}

/// Returns the body of a request to `/v1/completions`.
pub(super) fn of_completions(call: &Call, stream: bool) -> Value {
    let mut body = Value::Object(sampling(call, stream));
    body["prompt"] = call.ids.clone().into();
    body["stream"] = stream.into();
    body["priority"] = (-i64::from(call.priority)).into();
    body["return_token_ids"] = true.into();
    body["return_tokens_as_token_ids"] = true.into();
    body["skip_special_tokens"] = false.into();
    complete(&mut body, call, stream);
    body
}

fn complete(body: &mut Value, call: &Call, stream: bool) {
    if stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    if !call.cache_salt.is_empty() {
        body["cache_salt"] = (*call.cache_salt).into();
    }
}

/// Returns the parameters that both paths have. A grammar ends at the engine's own end token.
fn sampling(call: &Call, stream: bool) -> Map<String, Value> {
    let sampling = &call.sampling;
    let mut bias: Map<String, Value> =
        sampling.logit_bias.iter().map(|(id, bias)| (id.to_string(), json!(bias))).collect();
    bias.extend(call.banned.iter().map(|id| (id.to_string(), json!(BAN))));
    let body = json!({
        "max_tokens": call.max_tokens,
        "min_tokens": call.min_tokens,
        "stop_token_ids": call.stop_token_ids,
        "ignore_eos": call.grammar.is_none(),
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": bias,
        "seed": call.seed(SEED_BITS),
        "logprobs": call.logprobs,
        "prompt_logprobs": call.prompt_logprobs.filter(|_| !stream),
        "structured_outputs": call.grammar.as_ref().map(|grammar| json!({"grammar": lark(grammar)})),
    });
    let Value::Object(body) = body else { unreachable!("an object") };
    body
}

/// What an event of a stream reports.
pub(super) enum Chunk {
    /// The next tokens, and the end of the call.
    Tokens(Vec<Chosen>, Option<CallEnd>),
    /// The usage, of which the last event has all.
    Usage(Usage),
}

/// The counts of a call.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// The tokens of the prompt that were found in the cache.
    pub(super) cached: usize,
    /// The tokens of the prompt, and of the output. None: not reported.
    pub(super) prompt: Option<usize>,
    pub(super) output: Option<usize>,
}

/// Reads an event of a stream.
///
/// # Errors
/// It is not as documented.
pub(super) fn chunk(event: &Value, logprobs: Option<u32>) -> Result<Chunk, CallError> {
    let Some(choice) = event["choices"].get(0) else {
        let usage = &event["usage"];
        return Ok(Chunk::Usage(Usage {
            cached: json::number(&usage["prompt_tokens_details"]["cached_tokens"]).unwrap_or(0),
            prompt: json::number(&usage["prompt_tokens"]),
            output: json::number(&usage["completion_tokens"]),
        }));
    };
    if json::number(&choice["index"]) != Some(0) || event["choices"].get(1).is_some() {
        return Err(contradiction("choices"));
    }
    let ids = json::ids(&choice["token_ids"])?;
    let chosen = match logprobs {
        None => plain(&ids),
        Some(most) => with_logprobs(&ids, &choice["logprobs"], most)?,
    };
    let end = match choice["finish_reason"].as_str() {
        None => None,
        Some("stop") => Some(CallEnd::Stop),
        Some("length") => Some(CallEnd::Length),
        Some("abort" | "error") => return Err(CallError::Lost("the output ended with an error".to_owned())),
        Some(_) => return Err(contradiction("finish_reason")),
    };
    Ok(Chunk::Tokens(chosen, end))
}

/// Returns tokens with the log-probabilities of either path.
fn with_logprobs(ids: &[u32], logprobs: &Value, most: u32) -> Result<Vec<Chosen>, CallError> {
    let positions = match logprobs["content"].as_array() {
        Some(content) => content.iter().map(of_content).collect::<Result<Vec<_>, _>>()?,
        None => of_completion(logprobs)?,
    };
    if positions.len() != ids.len() {
        return Err(contradiction("logprobs"));
    }
    let chosen = |(&id, top): (&u32, Vec<(u32, f32)>)| {
        let logprob = top.iter().find(|(other, _)| *other == id).ok_or_else(|| contradiction("logprobs"))?.1;
        let (id, logprobs) = with_top(id, logprob, top, most);
        Ok(Chosen { id, logprobs: Some(logprobs) })
    };
    ids.iter().zip(positions).map(chosen).collect()
}

/// Returns the reported tokens at a position of `/inference/v1/generate`.
fn of_content(position: &Value) -> Result<Vec<(u32, f32)>, CallError> {
    let token = |value: &Value| Ok((json::id(&value["token_id"])?, json::logprob(&value["logprob"])?));
    let mut tokens = vec![token(position)?];
    tokens.extend(
        json::items(&position["top_logprobs"], "top_logprobs")?.iter().map(token).collect::<Result<Vec<_>, _>>()?,
    );
    Ok(tokens)
}

/// Returns the reported tokens at each position of `/v1/completions`.
fn of_completion(logprobs: &Value) -> Result<Vec<Vec<(u32, f32)>>, CallError> {
    let id = |text: &str| {
        let id = text.strip_prefix(TOKEN_ID).and_then(|digits| digits.parse().ok());
        id.ok_or_else(|| contradiction("a token of logprobs"))
    };
    let tokens = json::items(&logprobs["tokens"], "logprobs")?;
    let position = |(at, token): (usize, &Value)| {
        let mut tokens =
            vec![(id(token.as_str().unwrap_or_default())?, json::logprob(&logprobs["token_logprobs"][at])?)];
        for (token, logprob) in logprobs["top_logprobs"][at].as_object().into_iter().flatten() {
            tokens.push((id(token)?, json::logprob(logprob)?));
        }
        Ok(tokens)
    };
    tokens.iter().enumerate().map(position).collect()
}

/// Reads the log-probabilities of a prompt's tokens after the first.
///
/// # Errors
/// They are not as documented.
pub(super) fn prompt_logprobs(positions: &Value, ids: &[u32], most: u32) -> Result<Vec<(u32, Logprobs)>, CallError> {
    let positions = json::items(positions, "prompt_logprobs")?;
    let token = |(&id, position): (&u32, &Value)| {
        let tokens = position.as_object().ok_or_else(|| contradiction("prompt_logprobs"))?;
        let mut top = Vec::with_capacity(tokens.len());
        for (token, value) in tokens {
            let token: u32 = token.parse().map_err(|_| contradiction("prompt_logprobs"))?;
            top.push((token, json::logprob(&value["logprob"])?));
        }
        let logprob = top.iter().find(|(other, _)| *other == id).ok_or_else(|| contradiction("prompt_logprobs"))?.1;
        Ok(with_top(id, logprob, top, most))
    };
    ids.iter().zip(positions).skip(1).map(token).collect()
}
