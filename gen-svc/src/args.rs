//! The command line. Nothing below it reads the environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tandem_common::serve::ServeArgs;
use tandem_common::telemetry::{LogArgs, TelemetryArgs};

use crate::engine::{Config, DeviceChoice, DtypeChoice, Quantize};

/// Runs one language model on libtorch and streams its tokens.
#[derive(Debug, Parser)]
#[command(name = "gen-svc", version, disable_help_subcommand = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model over gRPC.
    ///
    /// Prints `gen-svc listening on ADDRESS` once requests are served, after `gen-svc control listening on ADDRESS` and `gen-svc metrics
    /// listening on ADDRESS` where they are. While the model is loaded, health says NOT_SERVING and calls are refused. Logs go to
    /// standard error. SIGTERM ends it after what runs has finished.
    Serve(Box<Serve>),
    /// Run requests from a file or standard input, without a server.
    ///
    /// A request is a JSON object: prompt or token_ids; max_new_tokens, min_new_tokens; temperature, top_k, top_p, min_p, typical_p,
    /// repetition_penalty, presence_penalty, frequency_penalty, logit_bias ({"ID": BIAS}), seed; stop (a string or a list),
    /// stop_token_ids, ignore_eos, include_stop; grammar, an object with json_schema, regex, lark or choice. Example:
    /// echo '{"prompt": "Once upon a time", "max_new_tokens": 40, "temperature": 0}' | gen-svc generate --model MODEL.gguf
    #[command(mut_arg("log", |log| log.default_value("warn")))]
    Generate(Generate),
}

/// `gen-svc serve`
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Where to listen. Port 0 takes any free one.
    #[arg(
        long,
        env = "TANDEM_GEN_LISTEN",
        default_value = "127.0.0.1:50052",
        value_name = "ADDRESS",
        help_heading = "Serving"
    )]
    pub listen: SocketAddr,
    /// Where those who run the server look at it, flush its prefix cache and drain it. Default: nowhere.
    #[arg(long, env = "TANDEM_GEN_CONTROL_LISTEN", value_name = "ADDRESS", help_heading = "Serving")]
    pub control_listen: Option<SocketAddr>,
    /// Bearer tokens of those who run the server, as in --token-file, whose tokens then do not count there. Default: --token-file.
    #[arg(
        long,
        env = "TANDEM_GEN_CONTROL_TOKEN_FILE",
        value_name = "FILE",
        requires = "control_listen",
        help_heading = "Security"
    )]
    pub control_token_file: Option<PathBuf>,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// The server.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// What it tells of itself.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// `gen-svc generate`
#[derive(Debug, clap::Args)]
pub struct Generate {
    /// The request, or with --jsonl one request per line. `-` is standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    pub input: PathBuf,
    /// Answer each line with one JSON line, in order: {token_ids, text, finish_reason, usage} or {error}. Without it, the text
    /// is written as it is generated.
    #[arg(long)]
    pub jsonl: bool,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

/// The model and how it runs.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// The model: a .gguf file, or a Hugging Face folder with config.json, tokenizer.json and model.safetensors, whole or in parts.
    #[arg(long, env = "TANDEM_MODEL", value_name = "PATH")]
    pub model: PathBuf,
    /// What requests call the model. Default: the file's name without .gguf, or the folder's.
    #[arg(long, env = "TANDEM_MODEL_ID", value_name = "ID")]
    pub model_id: Option<String>,
    /// Where to compute: cpu, or cuda:N for the N-th GPU, counted from 0.
    #[arg(long, env = "TANDEM_DEVICE", default_value = "cpu", value_name = "DEVICE")]
    pub device: DeviceChoice,
    /// What to compute in.
    #[arg(long, env = "TANDEM_DTYPE", default_value = "auto", value_name = "DTYPE")]
    pub dtype: DtypeChoice,
    /// How to make weights smaller, on the CPU. Default: a GGUF's own blocks are kept, unless a dtype is asked for. Smaller is faster;
    /// f32 is what transformers computes.
    #[arg(long, env = "TANDEM_QUANTIZE", value_name = "HOW")]
    pub quantize: Option<Quantize>,
    /// Threads that compute. 0: one per core.
    #[arg(long, env = "TANDEM_THREADS", default_value_t = 0, value_name = "COUNT")]
    pub threads: usize,
    /// Requests that may wait; one more is refused at once.
    #[arg(long, env = "TANDEM_MAX_QUEUE", default_value_t = 256, value_name = "REQUESTS")]
    pub max_queue: usize,
    /// Outputs that are generated at once. They are computed together, and share the memory for keys and values.
    #[arg(long, env = "TANDEM_MAX_RUNNING", default_value_t = 64, value_name = "OUTPUTS")]
    pub max_running: usize,
    /// Tokens that a prompt may have. Default: as many as the model's context.
    #[arg(long, env = "TANDEM_MAX_PROMPT_TOKENS", value_name = "TOKENS")]
    pub max_prompt_tokens: Option<usize>,
    /// Memory for keys and values, in MiB: of what runs, and of what may be asked again. When it runs out, who came last waits.
    /// Default: a quarter of the free memory, or 4096 on a GPU, and never more than all running outputs can use.
    #[arg(long, env = "TANDEM_KV_MEMORY_MIB", value_name = "MIB")]
    pub kv_memory_mib: Option<u32>,
    /// Prompt tokens computed in one step: while prompts are read, other requests wait this long for their next token.
    #[arg(long, env = "TANDEM_PREFILL_CHUNK", default_value_t = 512, value_name = "TOKENS")]
    pub prefill_chunk: usize,
    /// How long a caller may read nothing before its request is given up, in seconds.
    #[arg(long, env = "TANDEM_READER_PATIENCE_SECONDS", default_value_t = 60, value_name = "SECONDS")]
    pub reader_patience_seconds: u64,
}

impl From<EngineArgs> for Config {
    fn from(args: EngineArgs) -> Self {
        Self {
            model_id: args.model_id,
            device: args.device,
            dtype: args.dtype,
            quantize: args.quantize,
            threads: args.threads,
            max_queue: args.max_queue,
            max_running: args.max_running,
            max_prompt_tokens: args.max_prompt_tokens,
            prefill_chunk: args.prefill_chunk,
            kv_memory: args.kv_memory_mib.map(|mib| u64::from(mib) << 20),
            reader_patience: Duration::from_secs(args.reader_patience_seconds),
            ..Self::new(args.model)
        }
    }
}
