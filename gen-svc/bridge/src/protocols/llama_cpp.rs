//! llama.cpp's `llama-server`, by its `/completion` (tools/server/README.md of llama.cpp).
//!
//! The server streams text in whole characters. The ids of a character of several tokens are lost but for the last
//! one; the count of tokens shows how many. They follow from the bytes of the character, where only one division of
//! them into tokens exists. Else the stream is left, and the next tokens are asked for without one, which loses none.
//! Log-probabilities are lost with the ids, so that calls for them never stream.

mod body;
mod lost_ids;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tandem_core::engine::Promise;
use tandem_model_files::tokenizer::Tokenizer;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use self::body::{ended, logprobs, prompt_progress};
use self::lost_ids::LostIds;
use crate::call::{
    ANSWER_BYTES, BUSY_PAUSE, Call, CallEnd, CallError, Report, TOKEN_BYTES, check_count, is_accepted, plain,
};
use crate::http::Http;
use crate::json;
use crate::kind::{Connected, EngineKind};
use crate::lack::{self, Lack};
use crate::lark::LLGUIDANCE_ONLY;
use crate::protocol::{EngineState, Facts, Load, Protocol};
use crate::spawned::send;
use crate::target::Target;
use tandem_core::sampling::{Chosen, Logprobs};

/// The tokens of a request without a stream.
const PIECE: usize = 16;
/// The likeliest tokens among which a token is looked for that the server does not report; then among all.
const HIDDEN_TOP: usize = 256;
/// A bias that no logit exceeds.
const FORCE: f32 = 1000.0;

/// The fields that a server lacks if it is built without llguidance.
static BY_SETTINGS: &[Lack] = &[
    Lack {
        field: "grammar.regex",
        problem: "it is built without LLAMA_LLGUIDANCE; use json_schema with a pattern, or choice",
        is_asked: lack::REGEX,
    },
    Lack {
        field: "grammar.lark",
        problem: "it is built without LLAMA_LLGUIDANCE; use json_schema or choice",
        is_asked: lack::LARK,
    },
    Lack {
        field: "grammar.whitespace",
        problem: "it is built without LLAMA_LLGUIDANCE, and bounds the white space of JSON itself; leave it out",
        is_asked: lack::WHITESPACE,
    },
];

/// llama.cpp.
pub(super) static KIND: EngineKind = EngineKind {
    flag: "llama-cpp",
    name: "llama.cpp",
    help: "llama-server of llama.cpp",
    lacks: &[
        Lack {
            field: "sampling.presence_penalty",
            problem: "it counts the prompt's tokens too; leave it out",
            is_asked: lack::PRESENCE_PENALTY,
        },
        Lack {
            field: "sampling.frequency_penalty",
            problem: "it counts the prompt's tokens too; leave it out",
            is_asked: lack::FREQUENCY_PENALTY,
        },
        Lack { field: "return_options.prompt_logprobs", problem: "it computes none", is_asked: lack::PROMPT_LOGPROBS },
        Lack {
            field: "grammar.after_reasoning",
            problem: "it cannot choose between a marker and a grammar; leave it out",
            is_asked: lack::AFTER_REASONING,
        },
        Lack {
            field: "stop.max_reasoning_tokens",
            problem: "the forced end of reasoning has no log-probabilities; leave out return_options.logprobs",
            is_asked: lack::REASONING_LIMIT_WITH_LOGPROBS,
        },
    ],
    lacks_by_settings: BY_SETTINGS,
    missing_promises: &[Promise::SameTokensAfterResume, Promise::IndependentOfBatch, Promise::SeedsAcrossReplicas],
    connect: LlamaCpp::connect,
};

#[derive(Debug)]
struct LlamaCpp {
    http: Http,
    tokenizer: Tokenizer,
    /// Created at the first character of several tokens.
    lost: Arc<OnceLock<LostIds>>,
    /// Whether the server reads grammars with llguidance.
    has_llguidance: Arc<AtomicBool>,
}

impl LlamaCpp {
    fn connect(target: &Target, tokenizer: Tokenizer) -> Connected {
        Ok(Arc::new(Self { http: Http::new(target)?, lost: Arc::default(), tokenizer, has_llguidance: Arc::default() }))
    }
}

#[tonic::async_trait]
impl Protocol for LlamaCpp {
    async fn state(&self) -> EngineState {
        match self.http.health("/health").await {
            Ok(StatusCode::SERVICE_UNAVAILABLE) => EngineState::Loading,
            Ok(status) if status.is_success() => EngineState::Ready,
            Ok(status) => EngineState::Lost(format!("/health answers {status}")),
            Err(error) => EngineState::Lost(error.to_string()),
        }
    }

    async fn facts(&self) -> Result<Facts, CallError> {
        let props = self.http.json("/props", None).await?;
        let models = self.http.json("/v1/models", None).await?;
        let model = &models["data"][0];
        let context = json::number(&props["default_generation_settings"]["n_ctx"]);
        let metrics = props["endpoint_metrics"].as_bool() == Some(false);
        let advice = metrics.then(|| "start llama-server with --metrics: its queue is not seen".to_owned());
        Ok(Facts {
            version: json::text(&props["build_info"]),
            model: json::text(&model["id"]),
            context: context.ok_or_else(|| CallError::Contradiction("/props has no n_ctx".to_owned()))?,
            slots: json::number(&props["total_slots"]),
            vocabulary: json::number(&model["meta"]["n_vocab"]),
            dtype: String::new(),
            quantization: json::text(&props["model_ftype"]),
            advice: advice.into_iter().collect(),
            ..Facts::default()
        })
    }

    async fn details(&self, facts: Facts) -> Result<Facts, CallError> {
        let body = json!({"prompt": [0], "n_predict": 1, "grammar": LLGUIDANCE_ONLY});
        let has_llguidance = is_accepted(self.http.generation("/completion", &body, ANSWER_BYTES).await)?;
        self.has_llguidance.store(has_llguidance, Ordering::Relaxed);
        let lacks = if has_llguidance { Vec::new() } else { BY_SETTINGS.iter().collect() };
        Ok(Facts { lacks, ..facts })
    }

    async fn tokenize(&self, text: &str) -> Result<Vec<u32>, CallError> {
        let body = json!({"content": text, "add_special": false, "parse_special": true});
        let answer = self.http.json("/tokenize", Some(&body)).await?;
        json::ids(&answer["tokens"])
    }

    async fn detokenize(&self, ids: &[u32]) -> Result<Option<String>, CallError> {
        let answer = self.http.json("/detokenize", Some(&json!({"tokens": ids}))).await?;
        answer["content"].as_str().map(|text| Some(text.to_owned())).ok_or_else(|| json::contradiction("content"))
    }

    async fn run(&self, mut call: Call, reports: &Sender<Report>) -> Result<CallEnd, CallError> {
        let asked = call.ids.len();
        let streams = call.logprobs.is_none();
        let last = asked + call.max_tokens;
        let mut is_streamed = streams;
        while call.ids.len() < last {
            let made = call.ids.len() - asked;
            let part = Part { of_call: last - call.ids.len(), banned: call.min_tokens.saturating_sub(made) };
            let next = match is_streamed {
                true => self.stream(&mut call, part, reports).await,
                false => self.piece(&mut call, part, reports).await,
            };
            if made > 0 && next == Err(CallError::Busy) {
                sleep(BUSY_PAUSE).await;
                continue;
            }
            match next? {
                Next::Ended(end) => return Ok(end),
                Next::Streams => is_streamed = streams,
                Next::Piece => is_streamed = false,
            }
        }
        Ok(CallEnd::Length)
    }

    async fn load(&self) -> Result<Load, CallError> {
        let metrics = self.http.text("/metrics").await?;
        let value = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.trim().parse::<f64>().ok()).unwrap_or(0.0)
        };
        Ok(Load {
            waiting: value("llamacpp:requests_deferred") as usize,
            running: value("llamacpp:requests_processing") as usize,
            steps: value("llamacpp:n_decode_total") as u64,
            ..Load::default()
        })
    }
}

impl LlamaCpp {
    fn body(&self, call: &Call, most: usize, is_early: bool, stream: bool) -> Value {
        body::completion(call, most, is_early, stream, self.has_llguidance.load(Ordering::Relaxed))
    }

    /// Streams the next tokens.
    async fn stream(&self, call: &mut Call, part: Part, reports: &Sender<Report>) -> Result<Next, CallError> {
        let most = part.tokens(usize::MAX);
        let body = self.body(call, most, part.banned > 0, true);
        let mut events = self.http.events("/completion", &body, call.max_bytes()).await?;
        let (mut count, mut held) = (0, Vec::new());
        while let Some(data) = events.next().await? {
            let event = json::event(&data)?;
            if let Some(report) = prompt_progress(&event, call.ids.len())? {
                send(reports, report).await?;
                continue;
            }
            let total = json::count(&event["tokens_predicted"])?;
            if event["stop"].as_bool() == Some(true) {
                check_prompt(&event, call.ids.len() - count)?;
                if let Some(cached) = json::number(&event["timings"]["cache_n"]) {
                    send(reports, Report::Cached(cached)).await?;
                }
                send_tokens(reports, held).await?;
                return Ok(if total == count { part.next(ended(&event)?, count)? } else { Next::Piece });
            }
            send_tokens(reports, std::mem::take(&mut held)).await?;
            let mut ids = json::ids(&event["tokens"])?;
            let missing =
                total.checked_sub(count + ids.len()).ok_or_else(|| json::contradiction("tokens_predicted"))?;
            if missing > 0 {
                let lost = self.lost.get_or_init(|| LostIds::new(&self.tokenizer));
                let text = event["content"].as_str().unwrap_or_default();
                match lost.find(text.as_bytes(), missing, &ids, &self.tokenizer) {
                    Some(found) => drop(ids.splice(0..0, found)),
                    None if call.grammar.is_some() => return Err(json::contradiction("a character in a grammar")),
                    None => return Ok(Next::Piece),
                }
            }
            count = total;
            call.ids.extend(&ids);
            // The output may end here. Whether the engine has used the whole prompt comes with the next event.
            let is_last = count >= most || ids.last().is_some_and(|id| call.stop_token_ids.contains(id));
            if is_last {
                held = ids;
            } else {
                send_tokens(reports, ids).await?;
            }
        }
        Err(CallError::Lost("the stream ended before its last event".to_owned()))
    }

    /// Asks for the next tokens without a stream.
    async fn piece(&self, call: &mut Call, part: Part, reports: &Sender<Report>) -> Result<Next, CallError> {
        // A grammar starts again with each request.
        let most = part.tokens(if call.grammar.is_some() { usize::MAX } else { PIECE });
        let body = self.body(call, most, part.banned > 0, false);
        let answer = self.http.generation("/completion", &body, call.max_bytes()).await?;
        let ids = json::ids(&answer["tokens"])?;
        check_prompt(&answer, call.ids.len())?;
        check_count("tokens_predicted", json::number(&answer["tokens_predicted"]), ids.len())?;
        if let Some(cached) = json::number(&answer["timings"]["cache_n"]) {
            send(reports, Report::Cached(cached)).await?;
        }
        let chosen = match call.logprobs {
            None => plain(&ids),
            Some(most) => {
                let reported = logprobs(&answer["completion_probabilities"], most)?;
                self.with_hidden(call, &ids, reported, most).await?
            }
        };
        if chosen.is_empty() {
            return Err(json::contradiction("tokens"));
        }
        call.ids.extend(&ids);
        let count = ids.len();
        send(reports, Report::Tokens(chosen)).await?;
        part.next(ended(&answer)?, count)
    }
}

async fn send_tokens(reports: &Sender<Report>, ids: Vec<u32>) -> Result<(), CallError> {
    if ids.is_empty() { Ok(()) } else { send(reports, Report::Tokens(plain(&ids))).await }
}

/// Completes log-probabilities.
impl LlamaCpp {
    /// Returns `ids` with their log-probabilities. The server reports none of a token that ends inside a character.
    async fn with_hidden(
        &self,
        call: &Call,
        ids: &[u32],
        reported: Vec<Chosen>,
        most: u32,
    ) -> Result<Vec<Chosen>, CallError> {
        let inside = self.inside(ids);
        let (mut reported, mut chosen) = (reported.into_iter().peekable(), Vec::with_capacity(ids.len()));
        for (at, &id) in ids.iter().enumerate() {
            match reported.next_if(|next| next.id == id && !inside[at]) {
                Some(next) => chosen.push(next),
                None => chosen.push(self.hidden(call, &ids[..at], id, most).await?),
            }
        }
        if reported.next().is_some() { Err(json::contradiction("completion_probabilities")) } else { Ok(chosen) }
    }

    /// Returns for each token whether the text ends inside a character after it.
    fn inside(&self, ids: &[u32]) -> Vec<bool> {
        let mut text: Vec<u8> = Vec::new();
        let is_inside = |id: &u32| {
            text.extend(self.tokenizer.token_bytes(*id).unwrap_or_default());
            ends_inside(&text)
        };
        ids.iter().map(is_inside).collect()
    }

    /// Asks for the log-probability of a token after others of the output. The answer is another token, which is a
    /// whole character: then the server reports its position.
    async fn hidden(&self, call: &Call, before: &[u32], id: u32, most: u32) -> Result<Chosen, CallError> {
        // The grammar would refuse the other token. The log-probabilities are those before it.
        let call = Call { ids: [&call.ids, before].concat(), grammar: None, ..call.clone() };
        let whole = self.tokenizer.encode("a", false).ok().and_then(|ids| ids.first().copied()).unwrap_or(0);
        for count in [HIDDEN_TOP, self.tokenizer.vocab_size()] {
            let mut body = self.body(&call, 1, false, false);
            body["logit_bias"] = json!([[whole, FORCE]]);
            body["n_probs"] = count.into();
            let most_bytes = ANSWER_BYTES + count * TOKEN_BYTES;
            let answer = self.http.generation("/completion", &body, most_bytes).await?;
            let top = body::top_logprobs(&answer["completion_probabilities"][0])?;
            if let Some(&(_, logprob)) = top.iter().find(|(other, _)| *other == id) {
                let top = top.into_iter().take(most as usize).collect();
                return Ok(Chosen { id, logprobs: Some(Logprobs { logprob, top }) });
            }
        }
        Err(json::contradiction("top_logprobs"))
    }
}

/// Returns whether the server takes the end of a text for a part of a character: one of the last bytes starts a
/// character that has more. It does not look at the bytes before them.
fn ends_inside(text: &[u8]) -> bool {
    let length = |lead: u8| match lead {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    text.iter().rev().take(4).zip(1..).any(|(&byte, bytes)| bytes < length(byte))
}

/// Checks that the prompt was used whole.
fn check_prompt(answer: &Value, tokens: usize) -> Result<(), CallError> {
    check_count("tokens_evaluated", json::number(&answer["tokens_evaluated"]), tokens)
}

/// A part of a call that is one request.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// The tokens that the call still has.
    of_call: usize,
    /// The first of them, which may not end the output.
    banned: usize,
}

impl Part {
    /// Returns the number of tokens to ask for, at most `most`.
    fn tokens(self, most: usize) -> usize {
        let tokens = if self.banned > 0 { self.banned } else { self.of_call };
        tokens.min(self.of_call).min(most)
    }

    /// Returns what follows this part, which ended after `count` tokens.
    ///
    /// # Errors
    /// It has no tokens, and does not end.
    fn next(self, end: CallEnd, count: usize) -> Result<Next, CallError> {
        let has_ended = end == CallEnd::Stop || count >= self.of_call;
        match count {
            _ if has_ended => Ok(Next::Ended(end)),
            0 => Err(json::contradiction("tokens_predicted")),
            _ => Ok(Next::Streams),
        }
    }
}

/// What follows a part of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Ended(CallEnd),
    /// A request with a stream, if the call has none.
    Streams,
    /// A request without a stream, because a stream loses ids here.
    Piece,
}
