//! The bodies of requests and answers.

use serde_json::{Map, Value, json};
use tandem_core::grammar::GrammarKind;
use tandem_core::sampling::{Chosen, Logprobs};

use crate::call::{Call, CallEnd, CallError, plain, with_top};
use crate::json::{self, contradiction};

/// Seeds are 64-bit signed integers.
const SEED_BITS: u32 = 63;
/// A bias that keeps a token from being chosen.
const BAN: f32 = -10_000.0;
/// All tokens, as a value of `top_k`.
const ALL: i64 = -1;

/// Returns the body of a request.
pub(super) fn request(call: &Call) -> Value {
    let sampling = &call.sampling;
    let mut bias: Map<String, Value> =
        sampling.logit_bias.iter().map(|(id, bias)| (id.to_string(), json!(bias))).collect();
    bias.extend(call.banned.iter().map(|id| (id.to_string(), json!(BAN))));
    let mut parameters = json!({
        "max_new_tokens": call.max_tokens,
        "min_new_tokens": call.min_tokens,
        "stop_token_ids": call.stop_token_ids,
        // A grammar ends at the engine's own end token.
        "ignore_eos": call.grammar.is_none(),
        "temperature": sampling.temperature,
        "top_k": if sampling.top_k == 0 { ALL } else { i64::from(sampling.top_k) },
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": bias,
        "sampling_seed": call.seed(SEED_BITS),
        "skip_special_tokens": false,
        "no_stop_trim": true,
    });
    match call.grammar.as_deref().map(|grammar| &grammar.kind) {
        Some(GrammarKind::JsonSchema(schema)) => parameters["json_schema"] = schema.as_str().into(),
        Some(GrammarKind::Regex(regex)) => parameters["regex"] = regex.as_str().into(),
        Some(GrammarKind::Choice(choices)) => parameters["regex"] = choice(choices).into(),
        Some(GrammarKind::Lark(_)) | None => {}
    }
    let mut body = json!({
        "input_ids": call.ids,
        "stream": true,
        "sampling_params": parameters,
        // A larger one runs first, with --enable-priority-scheduling.
        "priority": call.priority,
        "return_logprob": call.logprobs.is_some() || call.prompt_logprobs.is_some(),
        "top_logprobs_num": call.logprobs.max(call.prompt_logprobs).unwrap_or(0),
        "logprob_start_len": if call.prompt_logprobs.is_some() { 0 } else { -1 },
    });
    if !call.cache_salt.is_empty() {
        body["extra_key"] = (*call.cache_salt).into();
    }
    body
}

/// Returns a regular expression of these texts.
fn choice(choices: &[String]) -> String {
    let escaped = choices.iter().map(|text| {
        let escaped = text.chars().map(|char| match char {
            '\n' => "\\n".to_owned(),
            char if char.is_ascii_punctuation() => format!("\\{char}"),
            char => char.to_string(),
        });
        escaped.collect::<String>()
    });
    format!("({})", escaped.collect::<Vec<_>>().join("|"))
}

/// Returns why the output ended, if it did.
///
/// # Errors
/// The engine ended it.
pub(super) fn end(event: &Value) -> Result<Option<CallEnd>, CallError> {
    let reason = &event["meta_info"]["finish_reason"];
    match reason["type"].as_str() {
        None => Ok(None),
        Some("stop") => Ok(Some(CallEnd::Stop)),
        Some("length") => Ok(Some(CallEnd::Length)),
        Some("abort") if matches!(reason["status_code"].as_u64(), Some(429 | 503)) => Err(CallError::Busy),
        Some("abort") => Err(CallError::Lost("the output ended with an error".to_owned())),
        Some(_) => Err(contradiction("finish_reason")),
    }
}

/// The tokens of an output that are read.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Their number.
    pub(super) count: usize,
}

impl Progress {
    /// Returns the new tokens of an event. A server repeats all tokens in each event, unless it is started with
    /// `--incremental-streaming-output`.
    ///
    /// # Errors
    /// The counts contradict one another.
    pub(super) fn next(&mut self, event: &Value, logprobs: Option<u32>) -> Result<Vec<Chosen>, CallError> {
        let (ids, info) = (json::ids(&event["output_ids"])?, &event["meta_info"]);
        let total = json::count(&info["completion_tokens"])?;
        let known = if ids.len() == total { self.count } else { 0 };
        if total < self.count || ids.len() - known.min(ids.len()) != total - self.count {
            return Err(contradiction("completion_tokens"));
        }
        self.count = total;
        let new = ids.get(known..).unwrap_or_default();
        let Some(most) = logprobs else { return Ok(plain(new)) };
        let chosen = |(at, &id): (usize, &u32)| {
            let (_, logprobs) = position(info, "output", at, id, most)?;
            Ok(Chosen { id, logprobs: Some(logprobs) })
        };
        ids.iter().enumerate().skip(known).map(chosen).collect()
    }
}

/// Reads the log-probabilities of a prompt's tokens after the first.
///
/// # Errors
/// They are not as documented.
pub(super) fn prompt_logprobs(event: &Value, ids: &[u32], most: u32) -> Result<Vec<(u32, Logprobs)>, CallError> {
    let info = &event["meta_info"];
    ids.iter().enumerate().skip(1).map(|(at, &id)| position(info, "input", at, id, most)).collect()
}

/// Returns the log-probability of a token, and of the likeliest ones at its position.
fn position(info: &Value, side: &str, at: usize, id: u32, most: u32) -> Result<(u32, Logprobs), CallError> {
    let token = |value: &Value| Ok((json::id(&value[1])?, json::logprob(&value[0])?));
    let (reported, logprob) = token(&info[format!("{side}_token_logprobs")][at])?;
    if reported != id {
        return Err(contradiction("a token of the log-probabilities"));
    }
    let top = info[format!("{side}_top_logprobs")][at].as_array().map_or(&[][..], Vec::as_slice);
    Ok(with_top(id, logprob, top.iter().map(token).collect::<Result<_, CallError>>()?, most))
}

/// Returns the sum of a number over the ranks of `/v1/loads`.
pub(super) fn sum(loads: &Value, key: &str) -> usize {
    ranks(loads).iter().filter_map(|load| json::number(&load[key])).fold(0, usize::saturating_add)
}

/// Returns the mean of a share over the ranks of `/v1/loads`. None: there are none.
pub(super) fn mean(loads: &Value, key: &str) -> Option<f64> {
    let shares: Vec<f64> = ranks(loads).iter().filter_map(|load| load[key].as_f64()).collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
}

fn ranks(loads: &Value) -> &[Value] {
    loads["loads"].as_array().map_or(&[][..], Vec::as_slice)
}
