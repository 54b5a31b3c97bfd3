//! vLLM by the gRPC of its Rust frontend: the services `vllm.Inference` and `vllm.Control` of the crate `vllm-proto`.

use std::sync::Arc;

use tandem_core::engine::Promise;
use tandem_core::sampling::{Chosen, Logprobs};
use tandem_model_files::tokenizer::Tokenizer;
use tokio::sync::mpsc::Sender;
use tonic::transport::Channel;
use vllm_proto::candidate_tokens::Select;
use vllm_proto::control_client::ControlClient;
use vllm_proto::decoding_parameters::StructuredOutput;
use vllm_proto::finish_info::FinishReason;
use vllm_proto::generate_request::Prompt;
use vllm_proto::inference_client::InferenceClient;
use vllm_proto::{
    CandidateTokenInfo, CandidateTokens, DecodingParameters, EngineReasoningGate, GenerateRequest, GetModelInfoRequest,
    GetServerInfoRequest, KvCacheParameters, RandomSampling, ResponseOptions, SequenceOutput, StoppingCriteria,
    TokenIds,
};

use super::vllm::lacks;
use crate::call::{Call, CallEnd, CallError, Report, check_count, is_accepted, plain, with_top};
use crate::grpc::{Grpc, MAX_MESSAGE_BYTES};
use crate::json::contradiction;
use crate::kind::{Connected, EngineKind};
use crate::lark::{LLGUIDANCE_ONLY, lark};
use crate::protocol::{EngineState, Facts, Load, Protocol};
use crate::spawned::send;
use crate::target::Target;

/// Seeds are 64-bit signed integers.
const SEED_BITS: u32 = 63;

/// vLLM over its own gRPC.
pub(super) static KIND: EngineKind = EngineKind {
    flag: "vllm-grpc",
    name: "vLLM (vllm.Inference)",
    help: "gRPC of vLLM's Rust frontend (vllm serve --grpc-port)",
    lacks: lacks::LACKS,
    lacks_by_settings: lacks::BY_SETTINGS,
    missing_promises: &[Promise::SameTokensAfterResume, Promise::IndependentOfBatch, Promise::SeedsAcrossReplicas],
    connect: VllmGrpc::connect,
};

#[derive(Debug)]
struct VllmGrpc {
    grpc: Grpc,
}

impl VllmGrpc {
    fn connect(target: &Target, _tokenizer: Tokenizer) -> Connected {
        Ok(Arc::new(Self { grpc: Grpc::new(target)? }))
    }

    fn inference(&self) -> InferenceClient<Channel> {
        InferenceClient::new(self.grpc.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn control(&self) -> ControlClient<Channel> {
        ControlClient::new(self.grpc.channel())
    }
}

#[tonic::async_trait]
impl Protocol for VllmGrpc {
    async fn state(&self) -> EngineState {
        match self.control().get_server_info(self.grpc.health(GetServerInfoRequest {})).await {
            Ok(_) => EngineState::Ready,
            Err(status) => EngineState::Lost(self.grpc.failure(&status).to_string()),
        }
    }

    async fn facts(&self) -> Result<Facts, CallError> {
        let server = self.control().get_server_info(self.grpc.question(GetServerInfoRequest {})).await;
        let server = server.map_err(|status| self.grpc.failure(&status))?.into_inner();
        let model = self.control().get_model_info(self.grpc.question(GetModelInfoRequest {})).await;
        let model = model.map_err(|status| self.grpc.failure(&status))?.into_inner();
        let advice = (server.proto_version != vllm_proto::VERSION).then(|| {
            let (theirs, ours) = (&server.proto_version, vllm_proto::VERSION);
            format!("its protocol has the version {theirs}, the bridge has {ours}: fields may be missing")
        });
        Ok(Facts {
            version: server.engine_version,
            model: model.served_model_name,
            context: server.max_model_len as usize,
            slots: usize::try_from(server.max_running_requests).ok().filter(|slots| *slots > 0),
            advice: advice.into_iter().collect(),
            ..Facts::default()
        })
    }

    async fn details(&self, facts: Facts) -> Result<Facts, CallError> {
        let grammar = StructuredOutput::Grammar(LLGUIDANCE_ONLY.to_owned());
        let mut probe = one_token(Prompt::TokenIds(TokenIds { ids: vec![0] }));
        probe.decoding = Some(DecodingParameters { structured_output: Some(grammar), ..DecodingParameters::default() });
        let answer = self.inference().generate(self.grpc.generation(probe)).await;
        let has_llguidance = is_accepted(answer.map_err(|status| self.grpc.failure(&status)))?;
        Ok(lacks::with_llguidance(facts, has_llguidance))
    }

    async fn tokenize(&self, text: &str) -> Result<Vec<u32>, CallError> {
        let answer = self.inference().generate(self.grpc.generation(one_token(Prompt::Text(text.to_owned())))).await;
        let answer = answer.map_err(|status| self.grpc.failure(&status))?.into_inner();
        answer.prompt_info.map(|info| info.token_ids).ok_or_else(|| contradiction("prompt_info"))
    }

    async fn detokenize(&self, _ids: &[u32]) -> Result<Option<String>, CallError> {
        Ok(None)
    }

    async fn run(&self, call: Call, reports: &Sender<Report>) -> Result<CallEnd, CallError> {
        let (ids, prompt_logprobs, logprobs) = (call.ids.clone(), call.prompt_logprobs, call.logprobs);
        let stream = self.inference().generate_stream(self.grpc.generation(request(call))).await;
        let mut stream = stream.map_err(|status| self.grpc.failure(&status))?.into_inner();
        let mut count = 0;
        while let Some(response) = stream.message().await.map_err(|status| self.grpc.failure(&status))? {
            if let Some(info) = response.prompt_info {
                check_count("num_prompt_tokens", reported(info.num_prompt_tokens), ids.len())?;
                if let Some(most) = prompt_logprobs {
                    let tokens = with_logprobs(&ids, &info.logprobs, info.candidate_tokens, most)?;
                    send(reports, Report::PromptLogprobs(tokens.into_iter().skip(1).collect())).await?;
                }
            }
            let Some(output) = response.outputs else { continue };
            count += output.token_ids.len();
            let finish = output.finish_info.clone();
            if let Some(finish) = finish.as_ref().filter(|finish| finish.finish_reason() != FinishReason::NotFinished) {
                check_count("num_output_tokens", reported(finish.num_output_tokens), count)?;
            }
            if let Some(cached) = finish.as_ref().and_then(|finish| finish.num_cached_tokens) {
                send(reports, Report::Cached(cached as usize)).await?;
            }
            let chosen = chosen(output, logprobs)?;
            if !chosen.is_empty() {
                send(reports, Report::Tokens(chosen)).await?;
            }
            match finish.map(|finish| finish.finish_reason()) {
                None | Some(FinishReason::NotFinished) => {}
                Some(FinishReason::Stop) => return Ok(CallEnd::Stop),
                Some(FinishReason::Length) => return Ok(CallEnd::Length),
                Some(FinishReason::Aborted) => return Err(CallError::Lost("the output was aborted".to_owned())),
            }
        }
        Err(CallError::Lost("the stream ended before its last message".to_owned()))
    }

    async fn load(&self) -> Result<Load, CallError> {
        Ok(Load::default()) // only the HTTP server has metrics
    }
}

/// Returns a count. None: it is not set.
fn reported(count: u32) -> Option<usize> {
    Some(count as usize).filter(|count| *count > 0)
}

/// Returns a request for one token, whose answer has the ids of the prompt.
fn one_token(prompt: Prompt) -> GenerateRequest {
    GenerateRequest {
        prompt: Some(prompt),
        temperature: Some(0.0),
        stopping: Some(StoppingCriteria { max_new_tokens: 1, ignore_eos: true, ..StoppingCriteria::default() }),
        response: Some(ResponseOptions {
            prompt_token_ids: true,
            output_text: Some(false),
            ..ResponseOptions::default()
        }),
        ..GenerateRequest::default()
    }
}

fn request(call: Call) -> GenerateRequest {
    let sampling = &call.sampling;
    let top = |count: u32| CandidateTokens { select: Some(Select::TopN(count)) };
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    GenerateRequest {
        temperature: Some(sampling.temperature),
        sampling: Some(RandomSampling {
            num_sequences: 1,
            top_k: Some(sampling.top_k),
            top_p: Some(sampling.top_p),
            min_p: Some(sampling.min_p),
            seed: i64::try_from(call.seed(SEED_BITS)).ok(),
        }),
        decoding: Some(DecodingParameters {
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            repetition_penalty: sampling.repetition_penalty,
            logit_bias: sampling.logit_bias.iter().copied().collect(),
            bad_words_token_ids: call.banned.iter().map(|id| TokenIds { ids: vec![*id] }).collect(),
            structured_output: call.grammar.as_ref().map(|grammar| StructuredOutput::Grammar(lark(grammar))),
            ..DecodingParameters::default()
        }),
        stopping: Some(StoppingCriteria {
            max_new_tokens: count(call.max_tokens),
            min_new_tokens: count(call.min_tokens),
            // A grammar ends at the engine's own end token.
            ignore_eos: call.grammar.is_none(),
            stop_token_ids: call.stop_token_ids,
            ..StoppingCriteria::default()
        }),
        response: Some(ResponseOptions {
            output_text: Some(false),
            output_token_ids: true,
            output_logprobs: call.logprobs.is_some(),
            output_candidates: call.logprobs.filter(|count| *count > 0).map(top),
            prompt_logprobs: call.prompt_logprobs.is_some(),
            prompt_candidates: call.prompt_logprobs.filter(|count| *count > 0).map(top),
            skip_special_tokens: Some(false),
            ..ResponseOptions::default()
        }),
        kv: Some(KvCacheParameters { cache_salt: call.cache_salt.to_string(), ..KvCacheParameters::default() }),
        // A server with a parser of reasoning would wait for the end of reasoning.
        engine_reasoning_gate: call
            .grammar
            .as_ref()
            .map(|_| EngineReasoningGate { reasoning_ended: Some(true), ..EngineReasoningGate::default() }),
        // A lower one runs first there.
        priority: call.priority.saturating_neg(),
        prompt: Some(Prompt::TokenIds(TokenIds { ids: call.ids })),
        ..GenerateRequest::default()
    }
}

fn chosen(output: SequenceOutput, logprobs: Option<u32>) -> Result<Vec<Chosen>, CallError> {
    let Some(most) = logprobs else { return Ok(plain(&output.token_ids)) };
    let tokens = with_logprobs(&output.token_ids, &output.logprobs, output.candidate_tokens, most)?;
    Ok(tokens.into_iter().map(|(id, logprobs)| Chosen { id, logprobs: Some(logprobs) }).collect())
}

/// Returns tokens with their log-probabilities. Candidates are tokens other than these.
fn with_logprobs(
    ids: &[u32],
    logprobs: &[f32],
    candidates: Vec<CandidateTokenInfo>,
    most: u32,
) -> Result<Vec<(u32, Logprobs)>, CallError> {
    if logprobs.len() != ids.len() || !(candidates.len() == ids.len() || candidates.is_empty()) {
        return Err(contradiction("logprobs"));
    }
    let others = |info: CandidateTokenInfo| info.tokens.iter().map(|token| (token.id, token.logprob)).collect();
    let mut candidates = candidates.into_iter().map(others);
    let token = |(&id, &logprob)| with_top(id, logprob, candidates.next().unwrap_or_default(), most);
    Ok(ids.iter().zip(logprobs).map(token).collect())
}
