//! The command line and the environment. No other module reads them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, RangedU64ValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use serde_json::Value;
use tandem_common::address::listen_address;
use tandem_common::check::CheckArgs;
use tandem_common::program::{CompletionsArgs, DryRunArgs, ManArgs};
use tandem_common::serve::ServeArgs;
use tandem_common::telemetry::{LogArgs, TelemetryArgs};
use tandem_core::engine::{Config, DeviceList, DtypeChoice, Quantize};
use tandem_core::media::{ImageHost, MediaLimits};
use tandem_core::sampling::PARAMETER_NAMES;
use tandem_images::Limits as ImageLimits;

/// The flags of `gen-svc serve` that most operators set. `-h` lists them.
pub const USUAL_FLAGS: [&str; 12] = [
    "model",
    "mmproj",
    "device",
    "quantize",
    "threads",
    "max-queue",
    "max-running",
    "kv-memory-mib",
    "listen",
    "tls-cert",
    "tls-key",
    "token-file",
];

/// Runs one language model and streams its tokens.
#[derive(Debug, Parser)]
#[command(name = "gen-svc", version)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model over gRPC.
    ///
    /// Prints `gen-svc control listening on ADDRESS` and `gen-svc metrics listening on ADDRESS` if
    /// these are configured, then, once requests are accepted, `gen-svc listening on ADDRESS`.
    /// While the model loads, health reports NOT_SERVING and calls are rejected. Logs go to
    /// standard error. SIGTERM drains the server and then ends it.
    Serve(Box<Serve>),
    /// Run requests from a file or standard input, without a server.
    #[command(long_about = generate_help(), mut_arg("log", |log| log.default_value("warn")))]
    Generate(Generate),
    /// Ask a running service for its health; exit with 0 if it is SERVING.
    ///
    /// Otherwise the reason is on standard error, and the exit code is 1. It needs no shell, so
    /// that it can be a probe in a container. Example: gen-svc check 127.0.0.1:50052
    Check(CheckArgs),
    /// Print the completion script of a shell.
    ///
    /// Example: gen-svc completions bash > /etc/bash_completion.d/gen-svc
    Completions(CompletionsArgs),
    /// Write the manual pages.
    Man(ManArgs),
    /// Try the grammar on standard input. The service starts this to bound the cost of a grammar.
    #[command(hide = true)]
    TryGrammar,
    /// Print the time of decode steps that are launched without waiting for their tokens. The proof on a
    /// GPU compares it with that of a service.
    #[command(hide = true, mut_arg("log", |log| log.default_value("warn")))]
    TimeSteps(TimeSteps),
}

/// Returns the help of `gen-svc generate`, with the name of every sampling parameter.
fn generate_help() -> String {
    let parameters = PARAMETER_NAMES.join(", ");
    format!(
        "Run requests from a file or standard input, without a server.\n\nA request is a JSON object: prompt, token_ids or hf_messages \
         (a list of messages, with images as base64; hf_template has the template's other inputs); max_new_tokens, min_new_tokens, max_reasoning_tokens; {parameters}, logit_bias ({{\"ID\": BIAS}}), seed; stop (a string or a list), \
         stop_token_ids, ignore_eos, include_stop; grammar, an object with json_schema, regex, lark or choice, and with whitespace (bounded, none, free) and \
         after_reasoning; \
         output_spec, tokenizer_sha256. An answer of `render-svc render --jsonl` is a request too: its hf_messages, \
         or its token_ids, or else its prompt with its attachments, and its output_spec are used. An answer {{\"error\": ...}} is passed on.\n\nA conversation: \
         render-svc render --jsonl conversations.jsonl | gen-svc generate --jsonl --set max_new_tokens=64 --model \
         MODEL.gguf\n\nExample: echo '{{\"prompt\": \"Once upon a time\", \"max_new_tokens\": 40, \"temperature\": 0}}' | gen-svc generate \
         --model MODEL.gguf"
    )
}

/// The arguments of `gen-svc serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// The replica.
    #[command(flatten)]
    pub replica: ReplicaArgs,
}

/// The arguments of a replica, whatever its engine is.
#[derive(Debug, clap::Args)]
pub struct ReplicaArgs {
    /// Listen address. Port 0 takes a free port.
    #[arg(
        long,
        env = "TANDEM_GEN_LISTEN",
        value_parser = listen_address,
        default_value = "127.0.0.1:50052",
        value_name = "ADDRESS",
        help_heading = "Serving"
    )]
    pub listen: SocketAddr,
    /// Listen address of the control service (load, cache flush, drain) [default: disabled]
    #[arg(
        long,
        env = "TANDEM_GEN_CONTROL_LISTEN",
        value_parser = listen_address,
        value_name = "ADDRESS",
        help_heading = "Serving"
    )]
    pub control_listen: Option<SocketAddr>,
    /// Bearer tokens of the control service, in the format of --token-file, whose tokens it then
    /// rejects [default: the tokens of --token-file]
    #[arg(
        long,
        env = "TANDEM_GEN_CONTROL_TOKEN_FILE",
        value_name = "FILE",
        requires = "control_listen",
        help_heading = "Security"
    )]
    pub control_token_file: Option<PathBuf>,
    /// The server.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Logs, metrics and traces.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
    /// The validation of the settings.
    #[command(flatten)]
    pub dry_run: DryRunArgs,
}

/// The arguments of `gen-svc generate`.
#[derive(Debug, clap::Args)]
pub struct Generate {
    /// File with the request, or with one request per line for --jsonl. `-` is standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    pub input: PathBuf,
    /// Answer each line with one JSON line, in order: {token_ids, text, finish_reason, usage} or
    /// {error}. If a request failed, the exit code is 1. Without it, the text is written during
    /// generation.
    #[arg(long)]
    pub jsonl: bool,
    /// Default for a request key, as JSON. May be repeated. Examples:
    /// --set temperature=0, --set 'stop=["END"]'
    #[arg(long, value_name = "KEY=JSON", value_parser = setting)]
    pub set: Vec<(String, Value)>,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Whether a step is launched before the tokens of the last one are known on the host [default: false, on a
    /// GPU true]. The proof on a GPU compares both.
    #[arg(long, value_name = "BOOL", hide = true)]
    pub overlap_steps: Option<bool>,
    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

/// The arguments of `gen-svc time-steps`.
#[derive(Debug, clap::Args)]
pub struct TimeSteps {
    /// Numbers of sequences. Each is timed.
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "COUNT,...")]
    pub sequences: Vec<usize>,
    /// Positions of a sequence before the first step.
    #[arg(long, default_value_t = 1000, value_name = "TOKENS")]
    pub positions: usize,
    /// Steps to time.
    #[arg(long, default_value_t = 64, value_name = "COUNT")]
    pub steps: usize,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Reads a value of `--set`.
fn setting(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=JSON, such as temperature=0.2")?;
    let value = serde_json::from_str(value)
        .map_err(|_| format!("{value} is not JSON; a string needs quotes: {key}='\"TEXT\"'"))?;
    Ok((key.to_owned(), value))
}

/// The model and the engine.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Model: a .gguf file, a folder with one, a Hugging Face folder with config.json,
    /// tokenizer.json and safetensors files, or a repository in Hugging Face's cache.
    #[arg(long, env = "TANDEM_MODEL", value_name = "PATH")]
    pub model: PathBuf,
    /// Vision tower of a GGUF model: an mmproj file of llama.cpp [default: the file beside the
    /// model that has mmproj in its name and fits the model]
    #[arg(long, env = "TANDEM_MMPROJ", value_name = "FILE")]
    pub mmproj: Option<PathBuf>,
    /// Model id in requests [default: the file's name without .gguf, or the folder's name]
    #[arg(long, env = "TANDEM_MODEL_ID", value_name = "ID")]
    pub model_id: Option<String>,
    /// Device: cpu, or cuda:N for the GPU of index N, from 0. Several GPUs, such as cuda:0,cuda:1,
    /// each hold and compute a part of the layers, by their memory. On cpu, the kernels of gen-svc
    /// compute, and libtorch the models that they do not support; on cpu-torch, libtorch all.
    #[arg(long, env = "TANDEM_DEVICE", default_value_t = Config::default().devices, value_name = "DEVICE,...")]
    pub device: DeviceList,
    /// Dtype of weights and activations.
    #[arg(long, env = "TANDEM_DTYPE", default_value_t = Choice(Config::default().dtype), value_name = "DTYPE", value_enum)]
    pub dtype: Choice<DtypeChoice>,
    /// Quantization of the weights [default: on the CPU, keep for a GGUF unless --dtype is set; else
    /// none]
    #[arg(long, env = "TANDEM_QUANTIZE", value_name = "HOW", value_enum)]
    pub quantize: Option<Choice<Quantize>>,
    /// Compute threads. 0: one per core.
    #[arg(long, env = "TANDEM_THREADS", default_value_t = Config::default().threads, value_name = "COUNT")]
    pub threads: usize,
    /// Requests that may wait in the queue. Further ones are rejected.
    #[arg(long, env = "TANDEM_MAX_QUEUE", default_value_t = Config::default().max_queue, value_name = "REQUESTS")]
    pub max_queue: usize,
    /// Outputs that are generated at once. They share each step and the KV cache [default: 64, on a GPU
    /// 128]
    #[arg(long, env = "TANDEM_MAX_RUNNING", value_name = "OUTPUTS")]
    pub max_running: Option<usize>,
    /// Tokens that a prompt may have [default: the model's context]
    #[arg(long, env = "TANDEM_MAX_PROMPT_TOKENS", value_name = "TOKENS")]
    pub max_prompt_tokens: Option<usize>,
    /// Tokens that an output may have. A request for more gets this many [default: the model's
    /// context]
    #[arg(
        long,
        env = "TANDEM_MAX_OUTPUT_TOKENS",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..),
        value_name = "TOKENS"
    )]
    pub max_output_tokens: Option<usize>,
    /// KV cache size in MiB, for running requests and prefix reuse. When full, the newest request
    /// is preempted [default: a quarter of the free memory, on a GPU what weights and workspace leave of nine
    /// tenths of its memory, at most enough for --max-running]
    #[arg(long, env = "TANDEM_KV_MEMORY_MIB", value_name = "MIB")]
    pub kv_memory_mib: Option<u32>,
    /// Compute products of libtorch with as many rows in every step, so that an output depends on the
    /// other outputs less. Steps with prompts take longer. The kernels of gen-svc need no such flag.
    #[arg(long, env = "TANDEM_BATCH_INVARIANT")]
    pub batch_invariant: bool,
    /// Prompt tokens computed in one step. Larger is faster for prompts, and delays the next token
    /// of others [default: 512, on a GPU 2048]
    #[arg(long, env = "TANDEM_PREFILL_CHUNK", value_name = "TOKENS")]
    pub prefill_chunk: Option<usize>,
    /// Images that a request may have, for models with images.
    #[arg(long, env = "TANDEM_MAX_IMAGES", default_value_t = MediaLimits::default().images, value_name = "COUNT")]
    pub max_images: usize,
    /// Pixels that an image may have. Checked in its header, before it is decoded.
    #[arg(
        long,
        env = "TANDEM_MAX_IMAGE_PIXELS",
        default_value_t = MediaLimits::default().image.max_pixels,
        value_name = "PIXELS"
    )]
    pub max_image_pixels: u64,
    /// Memory in MiB for the prepared images of all requests until their answers end. One caller may have
    /// three quarters. A quarter as much more is for images that later requests reuse. An image of a million
    /// pixels takes some 3 to 7 MiB.
    #[arg(
        long,
        env = "TANDEM_MAX_IMAGE_MEMORY_MIB",
        default_value_t = (MediaLimits::default().memory_bytes >> 20) as u32,
        value_name = "MIB"
    )]
    pub max_image_memory_mib: u32,
    /// Hosts from which images at URLs are fetched: HOST or HOST:PORT for https, or http://HOST:PORT.
    /// Without it, no image is fetched. Redirects are not followed. A host needs a public address, unless
    /// private: precedes it, as for the object store of a cluster.
    #[arg(long, env = "TANDEM_IMAGE_HOSTS", value_delimiter = ',', value_name = "HOST,...")]
    pub image_hosts: Vec<ImageHost>,
}

impl From<EngineArgs> for Config {
    fn from(args: EngineArgs) -> Self {
        Self {
            model_id: args.model_id,
            mmproj: args.mmproj,
            dtype: args.dtype.0,
            quantize: args.quantize.map(|choice| choice.0),
            threads: args.threads,
            max_queue: args.max_queue,
            max_running: args.max_running.unwrap_or(args.device.default_max_running()),
            max_prompt_tokens: args.max_prompt_tokens,
            max_output_tokens: args.max_output_tokens,
            prefill_chunk: args.prefill_chunk.unwrap_or(args.device.default_prefill_chunk()),
            devices: args.device,
            media: MediaLimits {
                images: args.max_images,
                image: ImageLimits { max_pixels: args.max_image_pixels, ..ImageLimits::default() },
                memory_bytes: (args.max_image_memory_mib as usize) << 20,
            },
            image_hosts: args.image_hosts,
            batch_invariant: args.batch_invariant,
            kv_memory: args.kv_memory_mib.map(|mib| u64::from(mib) << 20),
            grammar_trials: own_program(),
            ..Self::new(args.model)
        }
    }
}

/// Returns the file of this program.
#[must_use]
pub fn own_program() -> Option<PathBuf> {
    // On Linux, this name stays that of the running program after an update of the file.
    if cfg!(target_os = "linux") { Some("/proc/self/exe".into()) } else { std::env::current_exe().ok() }
}

/// A value of an option that has a few values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice<T>(pub T);

/// The values of an option, with their names and help.
trait Values: Copy + Send + Sync + 'static {
    const ALL: &'static [Choice<Self>];

    fn name_and_help(self) -> (&'static str, &'static str);
}

impl<T: Values> ValueEnum for Choice<T> {
    fn value_variants<'a>() -> &'a [Self] {
        T::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = self.0.name_and_help();
        Some(PossibleValue::new(name).help(help))
    }
}

impl Values for DtypeChoice {
    const ALL: &'static [Choice<Self>] =
        &[Choice(Self::Auto), Choice(Self::F32), Choice(Self::Bf16), Choice(Self::F16)];

    fn name_and_help(self) -> (&'static str, &'static str) {
        let help = match self {
            Self::Auto => {
                "on the CPU f32, with quantized blocks as stored and keys and values in 16 bits; bf16 on a GPU"
            }
            Self::F32 => "32-bit floats everywhere, the reference",
            Self::Bf16 => "bfloat16: half the memory, coarser rounding",
            Self::F16 => "16-bit floats: finer rounding than bf16, up to 65504; libtorch computes",
        };
        (self.name(), help)
    }
}

impl Values for Quantize {
    const ALL: &'static [Choice<Self>] =
        &[Choice(Self::None), Choice(Self::Int8), Choice(Self::Int4), Choice(Self::Keep)];

    fn name_and_help(self) -> (&'static str, &'static str) {
        let help = match self {
            Self::None => "no quantization: all weights have the dtype",
            Self::Int8 => "8 bits",
            Self::Int4 => "4 bits; 8 bits for the first and the last matrix",
            Self::Keep => "the blocks of a GGUF as stored, on the CPU",
        };
        (self.name(), help)
    }
}
