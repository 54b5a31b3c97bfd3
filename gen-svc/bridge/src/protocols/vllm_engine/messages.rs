//! The messages of `vllm.grpc.engine`, with the fields that the bridge uses (`vllm_engine.proto` in the package
//! smg-grpc-proto 0.4). A field that is unset or 0 has the engine's neutral value, unless it is optional.

use std::collections::HashMap;

/// A request without fields.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Nothing {}

/// Answer of `HealthCheck`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthCheckResponse {
    #[prost(bool, tag = "1")]
    pub(super) healthy: bool,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

/// Answer of `GetModelInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ModelInfo {
    #[prost(uint32, tag = "3")]
    pub(super) max_context_length: u32,
    #[prost(uint32, tag = "4")]
    pub(super) vocab_size: u32,
    #[prost(string, tag = "6")]
    pub(super) served_model_name: String,
}

/// Answer of `GetServerInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ServerInfo {
    #[prost(string, tag = "14")]
    pub(super) model_dtype: String,
    /// 0: not reported.
    #[prost(int32, tag = "20")]
    pub(super) max_num_seqs: i32,
}

/// Answer of `GetLoads`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GetLoadsResponse {
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(message, repeated, tag = "4")]
    pub(super) loads: Vec<SchedulerLoad>,
}

/// The load of one rank.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SchedulerLoad {
    #[prost(int32, tag = "2")]
    pub(super) num_running_reqs: i32,
    #[prost(int32, tag = "3")]
    pub(super) num_waiting_reqs: i32,
    /// From 0 to 1.
    #[prost(double, tag = "7")]
    pub(super) token_usage: f64,
}

/// Request of `Generate`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GenerateRequest {
    #[prost(string, tag = "1")]
    pub(super) request_id: String,
    #[prost(oneof = "Input", tags = "2, 3")]
    pub(super) input: Option<Input>,
    #[prost(message, optional, tag = "4")]
    pub(super) sampling_params: Option<SamplingParams>,
    #[prost(bool, tag = "5")]
    pub(super) stream: bool,
}

/// The prompt.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Input {
    #[prost(message, tag = "2")]
    Tokenized(Tokenized),
    #[prost(string, tag = "3")]
    Text(String),
}

/// A prompt's ids.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Tokenized {
    #[prost(string, tag = "1")]
    pub(super) original_text: String,
    #[prost(uint32, repeated, tag = "2")]
    pub(super) input_ids: Vec<u32>,
}

/// The parameters of an output.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SamplingParams {
    #[prost(float, optional, tag = "1")]
    pub(super) temperature: Option<f32>,
    #[prost(float, tag = "2")]
    pub(super) top_p: f32,
    #[prost(uint32, tag = "3")]
    pub(super) top_k: u32,
    #[prost(float, tag = "4")]
    pub(super) min_p: f32,
    #[prost(float, tag = "5")]
    pub(super) frequency_penalty: f32,
    #[prost(float, tag = "6")]
    pub(super) presence_penalty: f32,
    #[prost(float, tag = "7")]
    pub(super) repetition_penalty: f32,
    #[prost(uint32, optional, tag = "8")]
    pub(super) max_tokens: Option<u32>,
    #[prost(uint32, tag = "9")]
    pub(super) min_tokens: u32,
    #[prost(uint32, repeated, tag = "11")]
    pub(super) stop_token_ids: Vec<u32>,
    #[prost(bool, tag = "14")]
    pub(super) ignore_eos: bool,
    #[prost(uint32, tag = "15")]
    pub(super) n: u32,
    /// In the notation of llguidance.
    #[prost(string, optional, tag = "18")]
    pub(super) grammar: Option<String>,
    #[prost(int32, optional, tag = "22")]
    pub(super) logprobs: Option<i32>,
    #[prost(int32, optional, tag = "23")]
    pub(super) prompt_logprobs: Option<i32>,
    #[prost(int32, optional, tag = "24")]
    pub(super) seed: Option<i32>,
    #[prost(map = "int32, float", tag = "26")]
    pub(super) logit_bias: HashMap<i32, f32>,
    /// The grammar does not wait for the end of reasoning.
    #[prost(bool, tag = "28")]
    pub(super) grammar_from_first_token: bool,
}

/// Answer of `Generate`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GenerateResponse {
    #[prost(oneof = "Response", tags = "1, 2")]
    pub(super) response: Option<Response>,
}

/// A part of an answer.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Chunk(Chunk),
    #[prost(message, tag = "2")]
    Complete(Complete),
}

/// The next tokens.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Chunk {
    #[prost(uint32, repeated, tag = "1")]
    pub(super) token_ids: Vec<u32>,
    #[prost(message, optional, tag = "5")]
    pub(super) output_logprobs: Option<OutputLogprobs>,
    /// In the first one.
    #[prost(message, optional, tag = "6")]
    pub(super) input_logprobs: Option<InputLogprobs>,
}

/// The end of an output.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Complete {
    /// `stop`, `length`, `abort` or `error`.
    #[prost(string, tag = "2")]
    pub(super) finish_reason: String,
    #[prost(uint32, tag = "3")]
    pub(super) prompt_tokens: u32,
    #[prost(uint32, tag = "4")]
    pub(super) completion_tokens: u32,
    #[prost(uint32, tag = "5")]
    pub(super) cached_tokens: u32,
    #[prost(message, optional, tag = "7")]
    pub(super) input_logprobs: Option<InputLogprobs>,
}

/// Log-probabilities of the tokens of a chunk.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OutputLogprobs {
    #[prost(float, repeated, tag = "1")]
    pub(super) token_logprobs: Vec<f32>,
    #[prost(message, repeated, tag = "3")]
    pub(super) top_logprobs: Vec<TopLogprobs>,
}

/// Log-probabilities of the prompt. The first token has none.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InputLogprobs {
    #[prost(message, repeated, tag = "1")]
    pub(super) token_logprobs: Vec<InputLogprob>,
    #[prost(uint32, repeated, tag = "2")]
    pub(super) token_ids: Vec<u32>,
    #[prost(message, repeated, tag = "3")]
    pub(super) top_logprobs: Vec<TopLogprobs>,
}

/// A log-probability.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InputLogprob {
    #[prost(float, optional, tag = "1")]
    pub(super) value: Option<f32>,
}

/// The likeliest tokens at a position.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TopLogprobs {
    #[prost(float, repeated, tag = "1")]
    pub(super) values: Vec<f32>,
    #[prost(uint32, repeated, tag = "2")]
    pub(super) token_ids: Vec<u32>,
}
