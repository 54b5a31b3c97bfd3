//! SGLang by `/generate` of its HTTP server (docs.sglang.ai, "SGLang Native APIs").

mod body;

use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::json;
use tandem_core::engine::Promise;
use tandem_core::grammar::Whitespace;
use tandem_model_files::tokenizer::Tokenizer;
use tokio::sync::mpsc::Sender;

use self::body::Progress;
use crate::call::{Call, CallEnd, CallError, Report, check_count};
use crate::http::Http;
use crate::json;
use crate::kind::{Connected, EngineKind};
use crate::lack::{self, Lack};
use crate::protocol::{EngineState, Facts, Load, Protocol};
use crate::spawned::send;
use crate::target::Target;

/// SGLang.
pub(super) static KIND: EngineKind = EngineKind {
    flag: "sglang",
    name: "SGLang",
    help: "HTTP server of SGLang (sglang.launch_server)",
    lacks: &[
        Lack {
            field: "sampling.typical_p",
            problem: "it has none; leave it out, or use top_p",
            is_asked: lack::TYPICAL_P,
        },
        Lack {
            field: "sampling.repetition_penalty",
            problem: "it takes at most 2",
            is_asked: |request| request.sampling.repetition_penalty > 2.0,
        },
        Lack {
            field: "sampling.presence_penalty",
            problem: "it would forget the tokens of the reasoning; leave it out, or use frequency_penalty",
            is_asked: lack::PRESENCE_PENALTY_OVER_CALLS,
        },
        Lack {
            field: "grammar.lark",
            problem: "it has no Lark grammars; use json_schema, regex or choice",
            is_asked: lack::LARK,
        },
        Lack {
            field: "grammar.whitespace",
            problem: "it has any white space in JSON; set it to WHITESPACE_FREE",
            is_asked: |request| lack::is_json(request, |whitespace| whitespace != Whitespace::Free),
        },
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
    lacks_by_settings: &[],
    missing_promises: &[Promise::SameTokensAfterResume, Promise::IndependentOfBatch, Promise::SeedsAcrossReplicas],
    connect: Sglang::connect,
};

#[derive(Debug)]
struct Sglang {
    http: Http,
}

impl Sglang {
    fn connect(target: &Target, _tokenizer: Tokenizer) -> Connected {
        Ok(Arc::new(Self { http: Http::new(target)? }))
    }
}

#[tonic::async_trait]
impl Protocol for Sglang {
    async fn state(&self) -> EngineState {
        // `/health` generates a token, and takes a second.
        match self.http.health("/ready").await {
            Ok(StatusCode::SERVICE_UNAVAILABLE) => EngineState::Loading,
            Ok(status) if status.is_success() => EngineState::Ready,
            Ok(status) => EngineState::Lost(format!("/ready answers {status}")),
            Err(error) => EngineState::Lost(error.to_string()),
        }
    }

    async fn facts(&self) -> Result<Facts, CallError> {
        let models = self.http.json("/v1/models", None).await?;
        let model = &models["data"][0];
        Ok(Facts {
            model: json::text(&model["id"]),
            context: json::count(&model["max_model_len"])?,
            ..Facts::default()
        })
    }

    async fn details(&self, facts: Facts) -> Result<Facts, CallError> {
        // It answers once a token is generated.
        self.http.text("/health").await?;
        let server = self.http.json("/server_info", None).await?;
        let loads = self.http.json("/v1/loads", None).await?;
        let slots = body::sum(&loads, "max_running_requests");
        let mut advice = Vec::new();
        if server["incremental_streaming_output"].as_bool() != Some(true) {
            advice.push("start SGLang with --incremental-streaming-output: each event repeats all tokens".to_owned());
        }
        if server["enable_deterministic_inference"].as_bool() != Some(true) {
            advice.push("start SGLang with --enable-deterministic-inference: sampling.seed has no effect".to_owned());
        }
        Ok(Facts {
            version: json::text(&server["version"]),
            slots: Some(slots).filter(|slots| *slots > 0),
            dtype: json::text(&server["dtype"]),
            quantization: json::text(&server["quantization"]),
            advice,
            ..facts
        })
    }

    async fn tokenize(&self, text: &str) -> Result<Vec<u32>, CallError> {
        let body = json!({"prompt": text, "add_special_tokens": false});
        json::ids(&self.http.json("/tokenize", Some(&body)).await?["tokens"])
    }

    async fn detokenize(&self, ids: &[u32]) -> Result<Option<String>, CallError> {
        let body = json!({"tokens": ids, "skip_special_tokens": false});
        let answer = self.http.json("/detokenize", Some(&body)).await?;
        answer["text"].as_str().map(|text| Some(text.to_owned())).ok_or_else(|| json::contradiction("text"))
    }

    async fn run(&self, call: Call, reports: &Sender<Report>) -> Result<CallEnd, CallError> {
        let mut events = self.http.events("/generate", &body::request(&call), call.max_bytes()).await?;
        let mut progress = Progress::default();
        let mut has_prompt = call.prompt_logprobs.is_none();
        while let Some(data) = events.next().await? {
            if data == "[DONE]" {
                break;
            }
            let event = json::event(&data)?;
            let end = body::end(&event)?;
            check_count("prompt_tokens", json::number(&event["meta_info"]["prompt_tokens"]), call.ids.len())?;
            if !std::mem::replace(&mut has_prompt, true) {
                let tokens = body::prompt_logprobs(&event, &call.ids, call.prompt_logprobs.unwrap_or_default())?;
                send(reports, Report::PromptLogprobs(tokens)).await?;
            }
            if let (0, Some(cached)) = (progress.count, json::number(&event["meta_info"]["cached_tokens"])) {
                send(reports, Report::Cached(cached)).await?;
            }
            let tokens = progress.next(&event, call.logprobs)?;
            if !tokens.is_empty() {
                send(reports, Report::Tokens(tokens)).await?;
            }
            if let Some(end) = end {
                return Ok(end);
            }
        }
        Err(CallError::Lost("the stream ended before its last event".to_owned()))
    }

    async fn load(&self) -> Result<Load, CallError> {
        let loads = self.http.json("/v1/loads", None).await?;
        Ok(Load {
            waiting: body::sum(&loads, "num_waiting_reqs"),
            running: body::sum(&loads, "num_running_reqs"),
            kv_used: body::mean(&loads, "token_usage"),
            kv_blocks: body::sum(&loads, "max_total_num_tokens"),
            kv_block_size: 1,
            ..Load::default()
        })
    }
}
