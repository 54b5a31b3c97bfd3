//! The bodies of requests and answers.

use serde_json::{Value, json};
use tandem_core::grammar::GrammarKind;
use tandem_core::sampling::{Chosen, Logprobs};

use crate::call::{Call, CallEnd, CallError, Report, check_count};
use crate::json;
use crate::lark::{LLGUIDANCE, lark};

/// Seeds have 32 bits, of which the largest means a random one.
const SEED_BITS: u32 = 31;

/// Returns the body of a request for the next `most` tokens. `is_early`: none of them may end the output.
pub(super) fn completion(call: &Call, most: usize, is_early: bool, stream: bool, has_llguidance: bool) -> Value {
    let sampling = &call.sampling;
    let ends: &[u32] = if is_early { &call.stop_token_ids } else { &[] };
    let banned = call.banned.iter().chain(ends).map(|id| json!([id, false]));
    let biased = sampling.logit_bias.iter().map(|(id, bias)| json!([id, bias]));
    let mut body = json!({
        "prompt": call.ids,
        "n_predict": most,
        "stream": stream,
        "return_tokens": true,
        "return_progress": stream,
        "cache_prompt": call.cache_salt.is_empty(),
        "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p", "typ_p"],
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "typical_p": sampling.typical_p,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": call.ids.len() + most,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "dynatemp_range": 0,
        "dry_multiplier": 0,
        "xtc_probability": 0,
        "mirostat": 0,
        "top_n_sigma": -1,
        "ignore_eos": false,
        "stop": [],
        "seed": call.seed(SEED_BITS),
        "logit_bias": biased.chain(banned).collect::<Vec<_>>(),
        "n_probs": call.logprobs.map_or(0, |count| count.max(1)),
        "post_sampling_probs": false,
    });
    if let Some(grammar) = call.grammar.as_deref().filter(|_| has_llguidance) {
        // Its version ignores a pattern of white space.
        body["grammar"] = format!("{LLGUIDANCE}\n{}", lark(grammar)).into();
        return body;
    }
    match call.grammar.as_deref().map(|grammar| &grammar.kind) {
        Some(GrammarKind::JsonSchema(schema)) => {
            body["json_schema"] = serde_json::from_str(schema).unwrap_or_default();
        }
        Some(GrammarKind::Choice(choices)) => body["grammar"] = choice(choices).into(),
        Some(GrammarKind::Regex(_) | GrammarKind::Lark(_)) | None => {}
    }
    body
}

/// Returns a grammar of GBNF, llama.cpp's notation (grammars/README.md), for one of these texts.
fn choice(choices: &[String]) -> String {
    let quoted = choices.iter().map(|text| {
        let escaped = text.chars().map(|char| match char {
            '"' | '\\' => format!("\\{char}"),
            char if char.is_control() => format!("\\U{:08X}", char as u32),
            char => char.to_string(),
        });
        format!("\"{}\"", escaped.collect::<String>())
    });
    format!("root ::= {}", quoted.collect::<Vec<_>>().join(" | "))
}

/// Returns the progress of a prompt with this many tokens, if the event reports it. Such an event has a token that is
/// none.
///
/// # Errors
/// It is of another prompt.
pub(super) fn prompt_progress(event: &Value, tokens: usize) -> Result<Option<Report>, CallError> {
    let Some(progress) = event.get("prompt_progress") else { return Ok(None) };
    check_count("prompt_progress.total", json::number(&progress["total"]), tokens)?;
    let count = |key: &str| json::number(&progress[key]).unwrap_or(0);
    Ok(Some(Report::Prompt { computed: count("processed"), cached: count("cache") }))
}

/// Returns the tokens of an answer's `completion_probabilities`, each with the log-probabilities of at most `most`
/// others. An answer that ends inside its first character has none.
///
/// # Errors
/// It is not as documented.
pub(super) fn logprobs(value: &Value, most: u32) -> Result<Vec<Chosen>, CallError> {
    if value.is_null() {
        return Ok(Vec::new());
    }
    let positions = json::items(value, "completion_probabilities")?;
    let chosen = |value: &Value| {
        let (id, logprob) = token_logprob(value)?;
        let top = top_logprobs(value)?.into_iter().take(most as usize).collect();
        Ok(Chosen { id, logprobs: Some(Logprobs { logprob, top }) })
    };
    positions.iter().map(chosen).collect()
}

/// Returns the likeliest tokens at a position.
///
/// # Errors
/// They are not as documented.
pub(super) fn top_logprobs(position: &Value) -> Result<Vec<(u32, f32)>, CallError> {
    position["top_logprobs"].as_array().map_or(&[][..], Vec::as_slice).iter().map(token_logprob).collect()
}

fn token_logprob(value: &Value) -> Result<(u32, f32), CallError> {
    Ok((json::id(&value["id"])?, json::logprob(&value["logprob"])?))
}

/// Returns why a request ended.
///
/// # Errors
/// It does not say so.
pub(super) fn ended(event: &Value) -> Result<CallEnd, CallError> {
    match event["stop_type"].as_str() {
        Some("eos") => Ok(CallEnd::Stop),
        Some("limit") => Ok(CallEnd::Length),
        _ => Err(json::contradiction("stop_type")),
    }
}
