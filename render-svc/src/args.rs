//! The command line and the environment. No other module reads them.

use std::env;
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Parser, Subcommand};
use tandem_common::address::listen_address;
use tandem_common::call::{Credentials, service_uri};
use tandem_common::check::CheckArgs;
use tandem_common::program::{CompletionsArgs, DryRunArgs, ManArgs};
use tandem_common::serve::ServeArgs;
use tandem_common::telemetry::{LogArgs, TelemetryArgs};
use tandem_common::timing::NO_ADVANCE;
use tonic::transport::Uri;

use crate::capabilities::Capabilities;
use crate::catalog::Sources;
use crate::cli;
use crate::cli::query::{self, Question};
use crate::cli::screen::Reader;
use crate::generation;
use crate::limits::Limits;

/// The flags of `render-svc serve` that most operators set. `-h` lists them.
pub const USUAL_FLAGS: [&str; 12] = [
    "models",
    "config",
    "generate",
    "generate-ca",
    "generate-token-file",
    "listen",
    "max-calls",
    "health-listen",
    "metrics-listen",
    "tls-cert",
    "tls-key",
    "token-file",
];

/// Turns conversations into the exact prompts of models.
#[derive(Debug, Parser)]
#[command(name = "render-svc", version)]
pub struct Args {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve rendering, and tasks in front of a generation service, over gRPC.
    ///
    /// Prints `render-svc metrics listening on ADDRESS` if metrics are served, and `render-svc
    /// listening on ADDRESS` once requests are served. While models load, health reports
    /// NOT_SERVING and calls are rejected. Logs go to standard error. SIGTERM shuts it down after
    /// running requests have finished. SIGHUP reloads new and changed models; running requests keep
    /// their models. Example: render-svc serve --models models/ --generate http://127.0.0.1:50052
    Serve(Box<Serve>),
    /// Render requests from a file or standard input, without a server.
    ///
    /// A request is a JSON object: model (an id from --models, or a path); messages; tools,
    /// documents, template_args; add_generation_prompt, continue_final_message; adapter; template
    /// ("default", "tool_use", …); normalization ("capability" or "none"); capabilities
    /// (["SUPPORTS_SYSTEM_ROLE", …]); control_tokens ("tokens" or "literal"); render_time
    /// ("2025-07-04T09:05:03"); return (["token_ids", "offsets"]); omit_media (true leaves base64 data
    /// out of the answer). An object with a `conversation` is a RenderRequest of the contract in
    /// protobuf's JSON form, as grpcurl takes it. A terminal shows control tokens in colour, unless NO_COLOR is set,
    /// and control characters as escapes. Example: echo '{"model":
    /// "MODEL.gguf", "messages": [{"role": "user", "content": "Hi"}]}' | render-svc render
    #[command(mut_arg("log", |log| log.default_value("warn")))]
    Render(RenderArgs),
    /// Convert a text to token ids, or token ids to text, without a server.
    ///
    /// On a terminal, the tokens of TEXT are in alternating colours, and control tokens have another one. In a
    /// pipe, the answer is {token_ids}. Example: render-svc tokenize --model MODEL.gguf "Hello world"
    ///
    /// Without TEXT, a request is a JSON object: model (an id from --models, or a path); text, add_special_tokens,
    /// return_offsets, control_tokens ("tokens" or "literal"); or token_ids, skip_special_tokens. The
    /// answer is {token_ids, offsets?} or {text}. Example: echo '{"model": "MODEL.gguf", "text":
    /// "Hi"}' | render-svc tokenize
    #[command(mut_arg("log", |log| log.default_value("warn")))]
    Tokenize(TokenizeArgs),
    /// Explain which adapter renders a request and why, without a server.
    ///
    /// A request is one of `render`. The answer is {adapter, reason, rejected}; adapter is empty if the
    /// answer to the request has HF messages. Example: echo '{"model": "MODEL.gguf"}' | render-svc
    /// explain
    #[command(mut_arg("log", |log| log.default_value("warn")))]
    Explain(ExplainArgs),
    /// Ask a running service for its health; exit with 0 if it is SERVING.
    ///
    /// Otherwise the reason is on standard error, and the exit code is 1. It needs no shell, so
    /// that it can be a probe in a container. Example: render-svc check 127.0.0.1:50051
    Check(CheckArgs),
    /// Print the completion script of a shell.
    ///
    /// Example: render-svc completions bash > /etc/bash_completion.d/render-svc
    Completions(CompletionsArgs),
    /// Write the manual pages.
    Man(ManArgs),
}

/// `render-svc serve`
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("sources").args(["models", "config"]).required(true).multiple(true)))]
pub struct Serve {
    /// The models.
    #[command(flatten)]
    pub sources: Sources,

    /// The generation service.
    #[command(flatten)]
    pub generation: GenerationArgs,

    /// Address to listen on. Port 0 selects a free port.
    #[arg(
        long,
        env = "TANDEM_RENDER_LISTEN",
        value_parser = listen_address,
        default_value = "127.0.0.1:50051",
        value_name = "ADDRESS",
        help_heading = "Serving"
    )]
    pub listen: SocketAddr,

    /// The limits of a conversation.
    #[command(flatten)]
    pub limits: Limits,

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

/// The default of `--generate-patience-seconds`.
const DEFAULT_PATIENCE_SECONDS: u64 = 5;
/// The generation service that tasks use.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Generation")]
pub struct GenerationArgs {
    /// The generation service that tasks use: one address, or several (repeat the flag, or separate
    /// them with commas), or a name with several behind it, which is looked up every second. If a replica fails, the answer resumes on
    /// another one. Without this flag, RunTask is rejected.
    #[arg(
        long,
        env = "TANDEM_GENERATE",
        value_name = "http[s]://HOST:PORT",
        value_delimiter = ',',
        value_parser = service_uri
    )]
    pub generate: Vec<Uri>,

    /// Maximum wait of a task for a healthy replica, in seconds.
    #[arg(long, env = "TANDEM_GENERATE_PATIENCE_SECONDS", default_value_t = DEFAULT_PATIENCE_SECONDS, value_name = "SECONDS")]
    pub generate_patience_seconds: u64,

    /// Maximum time of an output outside of the queue without an advance, in seconds. Then the replica is
    /// stuck, although it sends events, and the answer resumes on another one. In the queue, the place may
    /// not improve for six times as long, and for a minute if another replica accepts tasks.
    #[arg(skip = NO_ADVANCE.as_secs())]
    pub generate_stall_seconds: u64,

    /// Be ready only while a healthy replica serves one of the models: `/readyz` and the health of the
    /// process then follow the replicas. The health of RenderService does not.
    #[arg(long, env = "TANDEM_READY_WITH_REPLICA", requires = "generate")]
    pub ready_with_replica: bool,

    /// PEM file of the authorities that sign the generation service's certificate. Required for
    /// https.
    #[arg(long, env = "TANDEM_GENERATE_CA", value_name = "FILE", requires = "generate")]
    pub generate_ca: Option<PathBuf>,

    /// PEM file of the client certificate for the generation service.
    #[arg(long, env = "TANDEM_GENERATE_CERT", value_name = "FILE", requires = "generate_key")]
    pub generate_cert: Option<PathBuf>,

    /// PEM file of the client certificate's key.
    #[arg(long, env = "TANDEM_GENERATE_KEY", value_name = "FILE", requires = "generate_cert")]
    pub generate_key: Option<PathBuf>,

    /// File with the bearer token for the generation service; its first token is used. Reloaded when
    /// it changes.
    #[arg(long, env = "TANDEM_GENERATE_TOKEN_FILE", value_name = "FILE", requires = "generate")]
    pub generate_token_file: Option<PathBuf>,
}

impl Default for GenerationArgs {
    fn default() -> Self {
        Self {
            generate: Vec::new(),
            generate_patience_seconds: DEFAULT_PATIENCE_SECONDS,
            generate_stall_seconds: NO_ADVANCE.as_secs(),
            ready_with_replica: false,
            generate_ca: None,
            generate_cert: None,
            generate_key: None,
            generate_token_file: None,
        }
    }
}

impl GenerationArgs {
    /// Returns the configuration of the generation client, or None without an address.
    #[must_use]
    pub fn config(&self) -> Option<generation::Config> {
        let Self {
            generate,
            generate_patience_seconds,
            generate_stall_seconds,
            ready_with_replica: _,
            generate_ca,
            generate_cert,
            generate_key,
            generate_token_file,
        } = self.clone();
        let identity = generate_cert.zip(generate_key).map(Into::into);
        let config = generation::Config {
            targets: generate,
            patience: Duration::from_secs(generate_patience_seconds),
            max_stall: Duration::from_secs(generate_stall_seconds),
            credentials: Credentials { ca: generate_ca, identity, token_file: generate_token_file },
        };
        (!config.targets.is_empty()).then_some(config)
    }
}

/// `render-svc render`
#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    /// File with the request, or with --jsonl one request per line. `-` is standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    pub input: PathBuf,

    /// Answer each line with one JSON line, in order: {prompt | hf_messages, adapter, output_spec,
    /// tokenizer_sha256, warnings, token_ids?, offsets?} or {error}. gen-svc generate --jsonl reads
    /// these lines. If a request failed, the exit code is 1. Without it, the exact bytes of the prompt
    /// are written.
    #[arg(long)]
    pub jsonl: bool,

    /// Capabilities of the model's template, for requests without capabilities:
    /// SUPPORTS_SYSTEM_ROLE, REQUIRES_STRICT_TURNS, SUPPORTS_TOOL_CALLS, SUPPORTS_REASONING,
    /// SUPPORTS_CONTENT_BLOCKS. Replaces the inferred ones; "" means unknown.
    #[arg(long, value_name = "NAMES", value_parser = capabilities)]
    pub capabilities: Option<Capabilities>,

    /// The models that requests may name by id.
    #[command(flatten)]
    pub sources: Sources,

    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

impl From<RenderArgs> for cli::Config {
    fn from(args: RenderArgs) -> Self {
        // The log is set up before the command runs.
        let RenderArgs { input, jsonl: is_jsonl, capabilities, sources, log: _ } = args;
        Self { input, is_jsonl, capabilities, sources }
    }
}

/// `render-svc tokenize`
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("tokenizer").args(["model", "models", "config"]).multiple(true)))]
pub struct TokenizeArgs {
    /// Text to convert, instead of a request. Control tokens in it are recognized.
    #[arg(value_name = "TEXT", value_parser = text, requires = "tokenizer")]
    pub text: Option<String>,

    /// File with the request. `-` is standard input.
    #[arg(long, default_value = "-", value_name = "FILE", conflicts_with = "text")]
    pub input: PathBuf,

    /// Model of TEXT, or of a request that names none: an id from --models, or a path. May be left out
    /// if --models has one model.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,

    /// The models that --model and requests may name by id.
    #[command(flatten)]
    pub sources: Sources,

    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

impl From<TokenizeArgs> for query::Config {
    fn from(args: TokenizeArgs) -> Self {
        let TokenizeArgs { text, input, model, sources, log: _ } = args;
        let model = model.unwrap_or_default();
        let question = match text {
            Some(text) => Question::Text { text, model },
            None => Question::Tokens { input, model },
        };
        Self { question, sources }
    }
}

/// Returns a text, unless it is the path of a file, which the operator may have meant.
fn text(value: &str) -> Result<String, String> {
    if value == "-" || Path::new(value).is_file() {
        return Err(format!("is a file; `--input {value}` reads a request from it"));
    }
    Ok(value.to_owned())
}

/// `render-svc explain`
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// File with the request. `-` is standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    pub input: PathBuf,

    /// The models that requests may name by id.
    #[command(flatten)]
    pub sources: Sources,

    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

impl From<ExplainArgs> for query::Config {
    fn from(ExplainArgs { input, sources, log: _ }: ExplainArgs) -> Self {
        Self { question: Question::Resolution { input }, sources }
    }
}

/// Returns the reader of standard output. Colours are left out if NO_COLOR is set and not empty, or if the terminal
/// has none.
#[must_use]
pub fn reader() -> Reader {
    if !io::stdout().is_terminal() {
        return Reader::Program;
    }
    let has_none = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Reader::Person { is_coloured: !has_none && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb") }
}

/// Reads names of capabilities between commas.
fn capabilities(names: &str) -> Result<Capabilities, String> {
    Capabilities::from_names(names.split(',').map(str::trim).filter(|name| !name.is_empty()))
}
