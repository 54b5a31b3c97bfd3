//! vLLM by its HTTP server: token ids in and out by `/inference/v1/generate` if the server has it, else by
//! `/v1/completions` (docs.vllm.ai, "OpenAI-Compatible Server").

mod body;
pub(super) mod lacks;
mod metrics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tandem_core::engine::Promise;
use tandem_model_files::tokenizer::Tokenizer;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use self::body::Chunk;
use crate::call::{ANSWER_BYTES, Call, CallEnd, CallError, Report, check_count, is_accepted};
use crate::http::Http;
use crate::json;
use crate::kind::{Connected, EngineKind};
use crate::lark::LLGUIDANCE_ONLY;
use crate::protocol::{EngineState, Facts, Load, Protocol};
use crate::spawned::send;
use crate::target::Target;

/// The path with token ids in and out, which `--enable-scale-out` opens.
const GENERATE: &str = "/inference/v1/generate";
/// The path that every server has.
const COMPLETIONS: &str = "/v1/completions";
/// More outputs than a server generates at once: it rejects the request, and names its limit.
const TOO_MANY_OUTPUTS: u32 = 16_384;

/// How long the events after an output's end may take.
const LAST_EVENTS_LIMIT: Duration = Duration::from_secs(1);

/// vLLM over HTTP.
pub(super) static KIND: EngineKind = EngineKind {
    flag: "vllm",
    name: "vLLM",
    help: "HTTP server of vLLM (vllm serve)",
    lacks: lacks::LACKS,
    lacks_by_settings: lacks::BY_SETTINGS,
    missing_promises: &[Promise::SameTokensAfterResume, Promise::IndependentOfBatch, Promise::SeedsAcrossReplicas],
    connect: Vllm::connect,
};

#[derive(Debug)]
struct Vllm {
    http: Http,
    /// True once the server has refused [`GENERATE`].
    has_completions_only: Arc<AtomicBool>,
}

impl Vllm {
    fn connect(target: &Target, _tokenizer: Tokenizer) -> Connected {
        Ok(Arc::new(Self { http: Http::new(target)?, has_completions_only: Arc::default() }))
    }

    fn path(&self) -> &'static str {
        if self.has_completions_only.load(Ordering::Relaxed) { COMPLETIONS } else { GENERATE }
    }

    /// Returns the name of the first model that is no adapter.
    async fn model(&self) -> Result<Value, CallError> {
        let models = self.http.json("/v1/models", None).await?;
        let models = json::items(&models["data"], "/v1/models")?;
        let base = models.iter().find(|model| model["parent"].is_null());
        base.cloned().ok_or_else(|| json::contradiction("/v1/models"))
    }
}

#[tonic::async_trait]
impl Protocol for Vllm {
    async fn state(&self) -> EngineState {
        match self.http.health("/health").await {
            Ok(status) if status.is_success() => EngineState::Ready,
            Ok(status) => EngineState::Lost(format!("/health answers {status}")),
            Err(error) => EngineState::Lost(error.to_string()),
        }
    }

    async fn facts(&self) -> Result<Facts, CallError> {
        let (model, version) = (self.model().await?, self.http.json("/version", None).await?);
        Ok(Facts {
            version: json::text(&version["version"]),
            model: json::text(&model["id"]),
            context: json::count(&model["max_model_len"])?,
            ..Facts::default()
        })
    }

    async fn details(&self, facts: Facts) -> Result<Facts, CallError> {
        let mut advice = Vec::new();
        self.has_completions_only.store(false, Ordering::Relaxed);
        let beyond = json!({u32::MAX.to_string(): 1});
        // A server that has no limit of outputs rejects the token.
        let many = json!({"n": TOO_MANY_OUTPUTS, "logit_bias": beyond});
        let slots = match self.limit(&facts, many, "max_num_seqs").await {
            Ok(slots) => slots,
            Err(CallError::Denied(403 | 404)) => {
                self.has_completions_only.store(true, Ordering::Relaxed);
                advice.push("start vLLM with --enable-scale-out: without it, it writes the text of every token".into());
                None
            }
            Err(error) => return Err(error),
        };
        let vocabulary = self.limit(&facts, json!({"logit_bias": beyond}), "Vocabulary size").await?;
        let probe = |fields: Value| {
            merged(json!({"model": facts.model, "prompt": [0], "max_tokens": 1, "temperature": 0}), fields)
        };
        let answer = self.http.generation(COMPLETIONS, &probe(json!({})), ANSWER_BYTES).await?;
        if answer["usage"]["prompt_tokens_details"].is_null() {
            advice.push("start vLLM with --enable-prompt-tokens-details: usage.cached_tokens is 0".into());
        }
        let likely = probe(json!({"logprobs": lacks::MAX_LOGPROBS}));
        if self.http.generation(COMPLETIONS, &likely, ANSWER_BYTES).await.is_err() {
            advice.push("start vLLM with --max-logprobs 20: it refuses return_options.logprobs".into());
        }
        // The first grammar decides which library a server uses for all.
        let grammar = json!({"structured_outputs": {"grammar": LLGUIDANCE_ONLY}});
        let has_llguidance = is_accepted(self.http.generation(COMPLETIONS, &probe(grammar), ANSWER_BYTES).await)?;
        Ok(lacks::with_llguidance(Facts { slots, vocabulary, advice, ..facts }, has_llguidance))
    }

    async fn tokenize(&self, text: &str) -> Result<Vec<u32>, CallError> {
        let body = json!({"prompt": text, "add_special_tokens": false});
        json::ids(&self.http.json("/tokenize", Some(&body)).await?["tokens"])
    }

    async fn detokenize(&self, ids: &[u32]) -> Result<Option<String>, CallError> {
        let answer = self.http.json("/detokenize", Some(&json!({"tokens": ids}))).await?;
        answer["prompt"].as_str().map(|text| Some(text.to_owned())).ok_or_else(|| json::contradiction("prompt"))
    }

    async fn run(&self, call: Call, reports: &Sender<Report>) -> Result<CallEnd, CallError> {
        if call.prompt_logprobs.is_some() {
            self.prompt_logprobs(&call, reports).await?;
        }
        let mut events = self.http.events(self.path(), &self.body(&call, true), call.max_bytes()).await?;
        let (mut last, mut end, mut count) = (Vec::new(), None, 0);
        loop {
            // After the end come the usage and a mark, which are not worth a wait.
            let most = if end.is_some() { LAST_EVENTS_LIMIT } else { Duration::MAX };
            let Ok(data) = timeout(most, events.next()).await else { break };
            let Some(data) = data?.filter(|data| data != "[DONE]") else { break };
            match body::chunk(&json::event(&data)?, call.logprobs)? {
                Chunk::Tokens(..) if end.is_some() => return Err(json::contradiction("a choice after its end")),
                Chunk::Tokens(tokens, ended) => {
                    count += tokens.len();
                    end = ended;
                    match end {
                        None => send(reports, Report::Tokens(tokens)).await?,
                        Some(_) => last = tokens,
                    }
                }
                Chunk::Usage(usage) => {
                    check_count("usage.prompt_tokens", usage.prompt, call.ids.len())?;
                    check_count("usage.completion_tokens", usage.output.filter(|_| end.is_some()), count)?;
                    send(reports, Report::Cached(usage.cached)).await?;
                }
            }
        }
        // The last tokens come after the usage: with them the output may end.
        if !last.is_empty() {
            send(reports, Report::Tokens(last)).await?;
        }
        end.ok_or_else(|| CallError::Lost("the stream ended before its last event".to_owned()))
    }

    async fn load(&self) -> Result<Load, CallError> {
        Ok(metrics::load(&self.http.text("/metrics").await?))
    }
}

impl Vllm {
    /// Returns the limit that the server names, after a mark, where it rejects parameters beyond it. None: it names none.
    async fn limit(&self, facts: &Facts, beyond: Value, mark: &str) -> Result<Option<usize>, CallError> {
        let fields = merged(json!({"max_tokens": 1, "temperature": 1}), beyond);
        let body = match self.path() {
            GENERATE => json!({"model": facts.model, "token_ids": [0], "sampling_params": fields}),
            _ => merged(json!({"model": facts.model, "prompt": [0]}), fields),
        };
        match self.http.generation(self.path(), &body, ANSWER_BYTES).await {
            Ok(_) => Ok(None),
            Err(CallError::Rejected(message)) => Ok(number_after(&message, mark)),
            Err(error) => Err(error),
        }
    }

    /// Asks for the log-probabilities of the prompt: a stream has none.
    async fn prompt_logprobs(&self, call: &Call, reports: &Sender<Report>) -> Result<(), CallError> {
        let first = Call { max_tokens: 1, min_tokens: 0, grammar: None, logprobs: None, ..call.clone() };
        let answer = self.http.generation(self.path(), &self.body(&first, false), first.max_bytes()).await?;
        let of_answer = &answer["prompt_logprobs"];
        let positions = if of_answer.is_null() { &answer["choices"][0]["prompt_logprobs"] } else { of_answer };
        let tokens = body::prompt_logprobs(positions, &call.ids, call.prompt_logprobs.unwrap_or_default())?;
        send(reports, Report::PromptLogprobs(tokens)).await
    }

    fn body(&self, call: &Call, stream: bool) -> Value {
        match self.path() {
            GENERATE => body::of_generate(call, stream),
            _ => body::of_completions(call, stream),
        }
    }
}

/// Returns the first number after a mark.
fn number_after(message: &str, mark: &str) -> Option<usize> {
    let (_, rest) = message.split_once(mark)?;
    rest.split(|char: char| !char.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

/// Returns an object with the fields of two.
fn merged(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => Value::Object(one.into_iter().chain(other).collect()),
        (one, _) => one,
    }
}
