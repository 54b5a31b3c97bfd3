//! vLLM by the gRPC of its Python server (`vllm serve --grpc`, the package smg-grpc-servicer): the service
//! `vllm.grpc.engine.VllmEngine`. Answers have token ids only.

mod messages;

use std::sync::Arc;

use prost::Message;
use tandem_core::engine::Promise;
use tandem_core::sampling::{Chosen, Logprobs};
use tandem_model_files::tokenizer::Tokenizer;
use tokio::sync::mpsc::Sender;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use self::messages::{
    Chunk, Complete, GenerateRequest, GenerateResponse, GetLoadsResponse, HealthCheckResponse, Input, ModelInfo,
    Nothing, Response, SamplingParams, ServerInfo, Tokenized, TopLogprobs,
};
use super::vllm::lacks;
use crate::call::{Call, CallEnd, CallError, Report, check_count, is_accepted, plain, with_top};
use crate::grpc::{Grpc, MAX_MESSAGE_BYTES};
use crate::json::contradiction;
use crate::kind::{Connected, EngineKind};
use crate::lack::Lack;
use crate::lark::{LLGUIDANCE_ONLY, lark};
use crate::protocol::{EngineState, Facts, Load, Protocol};
use crate::spawned::send;
use crate::target::Target;

/// Seeds are 32-bit signed integers.
const SEED_BITS: u32 = 31;
/// A bias that keeps a token from being chosen. Larger ones are cut to it.
const BAN: f32 = -100.0;

/// vLLM over the gRPC of its Python server.
pub(super) static KIND: EngineKind = EngineKind {
    flag: "vllm-engine",
    name: "vLLM (VllmEngine)",
    help: "gRPC of vLLM's Python server (vllm serve --grpc)",
    lacks: &[
        lacks::TEMPERATURE,
        lacks::TYPICAL_P,
        lacks::PRESENCE,
        lacks::AFTER_REASONING,
        lacks::REASONING_LIMIT,
        Lack {
            field: "cache_salt",
            problem: "it has none, and shares cached prompts; leave it out",
            is_asked: |request| !request.cache_salt.is_empty(),
        },
    ],
    lacks_by_settings: lacks::BY_SETTINGS,
    missing_promises: &[Promise::SameTokensAfterResume, Promise::IndependentOfBatch, Promise::SeedsAcrossReplicas],
    connect: VllmEngine::connect,
};

#[derive(Debug)]
struct VllmEngine {
    grpc: Grpc,
}

impl VllmEngine {
    fn connect(target: &Target, _tokenizer: Tokenizer) -> Connected {
        Ok(Arc::new(Self { grpc: Grpc::new(target)? }))
    }

    async fn ask<A: Message + Default + 'static>(
        &self,
        path: &'static str,
        request: Request<Nothing>,
    ) -> Result<A, CallError> {
        let mut client = self.client();
        client.ready().await.map_err(|error| CallError::lost(&error))?;
        let codec = ProstCodec::<Nothing, A>::default();
        let answer = client.unary(request, PathAndQuery::from_static(path), codec).await;
        Ok(answer.map_err(|status| self.grpc.failure(&status))?.into_inner())
    }

    async fn stream(&self, request: GenerateRequest) -> Result<Streaming<GenerateResponse>, CallError> {
        let mut client = self.client();
        client.ready().await.map_err(|error| CallError::lost(&error))?;
        let path = PathAndQuery::from_static("/vllm.grpc.engine.VllmEngine/Generate");
        let answer = client.server_streaming(self.grpc.generation(request), path, ProstCodec::default()).await;
        Ok(answer.map_err(|status| self.grpc.failure(&status))?.into_inner())
    }

    fn client(&self) -> tonic::client::Grpc<tonic::transport::Channel> {
        tonic::client::Grpc::new(self.grpc.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

#[tonic::async_trait]
impl Protocol for VllmEngine {
    async fn state(&self) -> EngineState {
        let request = self.grpc.health(Nothing {});
        match self.ask::<HealthCheckResponse>("/vllm.grpc.engine.VllmEngine/HealthCheck", request).await {
            Ok(HealthCheckResponse { healthy: true, .. }) => EngineState::Ready,
            Ok(HealthCheckResponse { message, .. }) => EngineState::Lost(message),
            Err(error) => EngineState::Lost(error.to_string()),
        }
    }

    async fn facts(&self) -> Result<Facts, CallError> {
        let question = || self.grpc.question(Nothing {});
        let model: ModelInfo = self.ask("/vllm.grpc.engine.VllmEngine/GetModelInfo", question()).await?;
        let server: ServerInfo = self.ask("/vllm.grpc.engine.VllmEngine/GetServerInfo", question()).await?;
        Ok(Facts {
            version: String::new(),
            model: model.served_model_name,
            context: model.max_context_length as usize,
            slots: usize::try_from(server.max_num_seqs).ok().filter(|slots| *slots > 0),
            vocabulary: Some(model.vocab_size as usize).filter(|size| *size > 0),
            dtype: server.model_dtype.trim_start_matches("torch.").to_owned(),
            ..Facts::default()
        })
    }

    async fn details(&self, mut facts: Facts) -> Result<Facts, CallError> {
        let loads: GetLoadsResponse =
            self.ask("/vllm.grpc.engine.VllmEngine/GetLoads", self.grpc.question(Nothing {})).await?;
        facts.version = loads.version;
        let mut probe = one_token(Input::Tokenized(Tokenized { original_text: String::new(), input_ids: vec![0] }));
        if let Some(sampling) = &mut probe.sampling_params {
            sampling.grammar = Some(LLGUIDANCE_ONLY.to_owned());
        }
        let has_llguidance = is_accepted(self.first(probe).await)?;
        Ok(lacks::with_llguidance(facts, has_llguidance))
    }

    async fn tokenize(&self, text: &str) -> Result<Vec<u32>, CallError> {
        let mut request = one_token(Input::Text(text.to_owned()));
        if let Some(sampling) = &mut request.sampling_params {
            sampling.prompt_logprobs = Some(1);
        }
        let complete = self.first(request).await?;
        complete.input_logprobs.map(|logprobs| logprobs.token_ids).ok_or_else(|| contradiction("input_logprobs"))
    }

    async fn detokenize(&self, _ids: &[u32]) -> Result<Option<String>, CallError> {
        Ok(None)
    }

    // The last message repeats the ids of the one before it.
    async fn run(&self, call: Call, reports: &Sender<Report>) -> Result<CallEnd, CallError> {
        let (prompt, prompt_logprobs, logprobs) = (call.ids.len(), call.prompt_logprobs, call.logprobs);
        let mut stream = self.stream(request(call)?).await?;
        let mut held = Vec::new();
        while let Some(message) = stream.message().await.map_err(|status| self.grpc.failure(&status))? {
            match message.response {
                Some(Response::Chunk(chunk)) => {
                    if let (Some(most), Some(input)) = (prompt_logprobs, &chunk.input_logprobs) {
                        let logprob =
                            input.token_logprobs.iter().map(|logprob| logprob.value.unwrap_or(0.0)).collect::<Vec<_>>();
                        let tokens = with_logprobs(&input.token_ids, &logprob, &input.top_logprobs, most)?;
                        send(reports, Report::PromptLogprobs(tokens.into_iter().skip(1).collect())).await?;
                    }
                    // The last chunk waits for the count of cached tokens.
                    let tokens = std::mem::replace(&mut held, chosen(chunk, logprobs)?);
                    if !tokens.is_empty() {
                        send(reports, Report::Tokens(tokens)).await?;
                    }
                }
                Some(Response::Complete(complete)) => {
                    let prompt_tokens = Some(complete.prompt_tokens as usize).filter(|count| *count > 0);
                    check_count("prompt_tokens", prompt_tokens, prompt)?;
                    // Those of the last chunk.
                    check_count("completion_tokens", Some(complete.completion_tokens as usize), held.len())?;
                    send(reports, Report::Cached(complete.cached_tokens as usize)).await?;
                    if !held.is_empty() {
                        send(reports, Report::Tokens(held)).await?;
                    }
                    return match complete.finish_reason.as_str() {
                        "stop" => Ok(CallEnd::Stop),
                        "length" => Ok(CallEnd::Length),
                        "abort" | "error" => Err(CallError::Lost("the output ended with an error".to_owned())),
                        _ => Err(contradiction("finish_reason")),
                    };
                }
                None => return Err(contradiction("a message")),
            }
        }
        Err(CallError::Lost("the stream ended before its last message".to_owned()))
    }

    async fn load(&self) -> Result<Load, CallError> {
        let question = self.grpc.question(Nothing {});
        let loads: GetLoadsResponse = self.ask("/vllm.grpc.engine.VllmEngine/GetLoads", question).await?;
        let ranks = loads.loads;
        let sum = |of: fn(&messages::SchedulerLoad) -> i32| {
            ranks.iter().map(|load| usize::try_from(of(load)).unwrap_or(0)).sum()
        };
        let used = ranks.iter().map(|load| load.token_usage).sum::<f64>() / ranks.len().max(1) as f64;
        Ok(Load {
            waiting: sum(|load| load.num_waiting_reqs),
            running: sum(|load| load.num_running_reqs),
            kv_used: Some(used),
            ..Load::default()
        })
    }
}

impl VllmEngine {
    /// Returns the answer to a request without a stream.
    async fn first(&self, request: GenerateRequest) -> Result<Complete, CallError> {
        let mut stream = self.stream(request).await?;
        while let Some(message) = stream.message().await.map_err(|status| self.grpc.failure(&status))? {
            if let Some(Response::Complete(complete)) = message.response {
                return Ok(complete);
            }
        }
        Err(CallError::Lost("the stream ended before its last message".to_owned()))
    }
}

/// Returns a request for one token.
fn one_token(input: Input) -> GenerateRequest {
    let sampling_params = SamplingParams {
        temperature: Some(0.0),
        max_tokens: Some(1),
        ignore_eos: true,
        n: 1,
        ..SamplingParams::default()
    };
    GenerateRequest {
        request_id: request_id(),
        input: Some(input),
        sampling_params: Some(sampling_params),
        stream: false,
    }
}

/// Returns an id that no other request of the engine has.
fn request_id() -> String {
    format!("tandem-{:016x}{:016x}", tandem_common::random::random_u64(), tandem_common::random::random_u64())
}

fn request(call: Call) -> Result<GenerateRequest, CallError> {
    let number = |count: u32| i32::try_from(count).ok();
    let mut logit_bias = std::collections::HashMap::new();
    for (id, bias) in call.sampling.logit_bias.iter().copied().chain(call.banned.iter().map(|id| (*id, BAN))) {
        logit_bias.insert(i32::try_from(id).map_err(|_| contradiction("an id"))?, bias);
    }
    let sampling = SamplingParams {
        temperature: Some(call.sampling.temperature),
        top_p: call.sampling.top_p,
        top_k: call.sampling.top_k,
        min_p: call.sampling.min_p,
        frequency_penalty: call.sampling.frequency_penalty,
        presence_penalty: call.sampling.presence_penalty,
        repetition_penalty: call.sampling.repetition_penalty,
        max_tokens: u32::try_from(call.max_tokens).ok(),
        min_tokens: u32::try_from(call.min_tokens).unwrap_or(u32::MAX),
        // A grammar ends at the engine's own end token.
        ignore_eos: call.grammar.is_none(),
        n: 1,
        logprobs: call.logprobs.and_then(number),
        prompt_logprobs: call.prompt_logprobs.and_then(number),
        seed: i32::try_from(call.seed(SEED_BITS)).ok(),
        grammar_from_first_token: call.grammar.is_some(),
        grammar: call.grammar.as_ref().map(|grammar| lark(grammar)),
        stop_token_ids: call.stop_token_ids,
        logit_bias,
    };
    Ok(GenerateRequest {
        request_id: request_id(),
        input: Some(Input::Tokenized(Tokenized { original_text: String::new(), input_ids: call.ids })),
        sampling_params: Some(sampling),
        stream: true,
    })
}

fn chosen(chunk: Chunk, logprobs: Option<u32>) -> Result<Vec<Chosen>, CallError> {
    let Some(most) = logprobs else { return Ok(plain(&chunk.token_ids)) };
    let output = chunk.output_logprobs.ok_or_else(|| contradiction("output_logprobs"))?;
    let tokens = with_logprobs(&chunk.token_ids, &output.token_logprobs, &output.top_logprobs, most)?;
    Ok(tokens.into_iter().map(|(id, logprobs)| Chosen { id, logprobs: Some(logprobs) }).collect())
}

fn with_logprobs(
    ids: &[u32],
    logprobs: &[f32],
    top: &[TopLogprobs],
    most: u32,
) -> Result<Vec<(u32, Logprobs)>, CallError> {
    if logprobs.len() != ids.len() || !(top.len() == ids.len() || top.is_empty()) {
        return Err(contradiction("logprobs"));
    }
    let others = |at: usize| match top.get(at) {
        Some(top) => top.token_ids.iter().copied().zip(top.values.iter().copied()).collect(),
        None => Vec::new(),
    };
    Ok(ids
        .iter()
        .zip(logprobs)
        .enumerate()
        .map(|(at, (&id, &logprob))| with_top(id, logprob, others(at), most))
        .collect())
}
