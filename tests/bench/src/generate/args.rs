//! The arguments of `generate`.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

/// Generation: decode and prefill, latency, the cost of gRPC, prefixes, quality, memory.
#[derive(Debug, Clone, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Generate {
    /// The gen-svc to measure.
    #[arg(long, value_name = "PATH")]
    pub(super) gen_svc: PathBuf,
    /// The model: a GGUF file.
    #[arg(long, value_name = "FILE")]
    pub(super) model: PathBuf,
    /// A model of random weights instead: Tandem and llama.cpp read it from a GGUF file in Q4_1, transformers from a
    /// folder.
    #[arg(long, value_name = "KIND")]
    pub(super) random: Option<RandomModel>,
    /// The folder of this model.
    #[arg(skip)]
    pub(super) folder: Option<PathBuf>,
    /// A Python with llama_cpp, or with torch, transformers and gguf. Missing packages are reported
    /// and not measured.
    #[arg(long, value_name = "PATH")]
    pub(super) python: PathBuf,
    /// The Pythons of systems that do not use --python: with vllm, openvino_genai or ik_llama_cpp.
    #[arg(long, value_delimiter = ',', value_name = "SYSTEM=PATH", value_parser = python_of)]
    pub(super) pythons: Vec<(Family, PathBuf)>,
    /// The parts to measure.
    #[arg(long, value_delimiter = ',', default_values = ["decode", "prefill", "latency", "grpc", "prefix", "quality", "memory"])]
    pub(super) only: Vec<Part>,
    /// Tandem's formats of weights. `grpc` measures the first; `quality` compares with f32, if that
    /// is one of them.
    #[arg(long, value_delimiter = ',', default_values = ["keep", "f32", "bf16", "int8", "int4"])]
    pub(super) modes: Vec<Mode>,
    /// The systems to measure. vLLM, OpenVINO and ik_llama.cpp are measured only if they are named.
    #[arg(long, value_delimiter = ',', default_values = ["tandem", "llama.cpp", "transformers"])]
    pub(super) systems: Vec<Family>,
    /// Rounds of every measurement. Each round measures every system.
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: usize,
    /// Tokens to generate per prompt for decode.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..))]
    pub(super) tokens: u32,
    /// KV cache of every gen-svc, in MiB. gen-svc's default depends on the free memory, and would
    /// differ between them.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    pub(super) kv_memory_mib: u32,
    /// Timeout of one answer, in seconds. After it the system is not measured further.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub(super) patience: u64,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// Tokens per second at batch 1, 8 and 32, and the share of the memory bandwidth at batch 1.
    Decode,
    /// Tokens per second of prompts of 512 and 4,096 tokens.
    Prefill,
    /// Time to the first token and between tokens, for 1, 8 and 32 streams at once.
    Latency,
    /// The cost of streaming: gRPC compared with `gen-svc generate --jsonl`.
    Grpc,
    /// Time to the first token of a second request with the same prefix of 4,000 tokens.
    Prefix,
    /// Perplexity, and how often the most probable token equals Tandem's in f32.
    Quality,
    /// Resident memory after load and at the end.
    Memory,
    /// The time of each part of a step, and the share of the machine's bandwidth and product rate that it
    /// reaches. With synthetic weights, not with --model. Measured only if it is named.
    Roofline,
    /// Time to prepare an image, of the tower, and to the first token. With models of random weights,
    /// not with --model. Measured only if it is named.
    Vision,
    /// Operations of libtorch in a decode step of each architecture, with tiny models, not with
    /// --model. Measured only if it is named.
    Operations,
    /// Tokens per second at batch 32 in f32, of libtorch in gen-svc and of transformers. Measured only if
    /// it is named.
    Batch,
}

/// Tandem's format of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// The format of the file.
    Keep,
    F32,
    Bf16,
    Int8,
    Int4,
    /// Computed by libtorch in f32, as on a GPU.
    Torch,
}

/// A kind of model of random weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RandomModel {
    /// Experts, of which each token has some: 10 layers of 32 experts, 4 per token.
    Mixture,
    /// Linear attention in three of four layers: 12 layers of the sizes of Qwen3.5 0.8B.
    Hybrid,
}

/// The project of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Family {
    Tandem,
    #[value(name = "llama.cpp")]
    LlamaCpp,
    Transformers,
    Vllm,
    #[value(name = "openvino")]
    OpenVino,
    #[value(name = "ik-llama.cpp")]
    IkLlamaCpp,
}

/// Parses text such as "vllm=venv/bin/python".
fn python_of(text: &str) -> Result<(Family, PathBuf), String> {
    let (family, path) = text.split_once('=').ok_or("expected SYSTEM=PATH")?;
    Ok((Family::from_str(family, false)?, path.into()))
}

impl Generate {
    /// Returns the files of the model that a system reads.
    pub(super) fn model_of(&self, family: Family) -> &Path {
        self.folder.as_deref().filter(|_| family == Family::Transformers).unwrap_or(&self.model)
    }

    /// Returns the Python of a system.
    pub(super) fn python_of(&self, family: Family) -> &Path {
        self.pythons.iter().rfind(|(of, _)| *of == family).map_or(&self.python, |(_, path)| path)
    }
}
