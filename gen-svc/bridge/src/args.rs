//! The command line and the environment. No other module reads them.

use std::path::PathBuf;

use clap::builder::{PossibleValue, RangedU64ValueParser, TypedValueParser};
use clap::{Parser, Subcommand};
use gen_svc::args::{ReplicaArgs, own_program};
use tandem_common::call::service_uri;
use tandem_common::check::CheckArgs;
use tandem_common::program::{CompletionsArgs, ManArgs};
use tandem_core::engine::Config as EngineConfig;

use crate::kind::EngineKind;
use crate::protocols::{self, ENGINES};
use crate::start::Config;
use crate::target::Target;

/// The flags of `gen-bridge serve` that most operators set. `-h` lists them.
pub const USUAL_FLAGS: [&str; 9] =
    ["engine", "engine-url", "engine-token-file", "model", "max-queue", "listen", "tls-cert", "tls-key", "token-file"];

/// Serves the generation contract in front of another engine.
#[derive(Debug, Parser)]
#[command(name = "gen-bridge", version)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model of another engine over gRPC, as gen-svc serves its own.
    ///
    /// Prints `gen-bridge control listening on ADDRESS` and `gen-bridge metrics listening on ADDRESS` if these are
    /// configured, then, once the engine has loaded its model and has the tokenizer of --model, `gen-bridge listening
    /// on ADDRESS`. While the engine loads or does not answer, health reports NOT_SERVING. Logs go to standard error.
    /// SIGTERM drains the bridge and then ends it; the engine is not ended.
    ///
    /// Example: llama-server -m MODEL.gguf --metrics --port 8080, and then
    /// gen-bridge serve --engine llama-cpp --engine-url http://127.0.0.1:8080 --model MODEL.gguf
    Serve(Box<Serve>),
    /// Ask a running bridge for its health; exit with 0 if it is SERVING.
    ///
    /// Otherwise the reason is on standard error, and the exit code is 1. Example: gen-bridge check 127.0.0.1:50052
    Check(Box<CheckArgs>),
    /// Print the completion script of a shell.
    ///
    /// Example: gen-bridge completions bash > /etc/bash_completion.d/gen-bridge
    Completions(CompletionsArgs),
    /// Write the manual pages.
    Man(ManArgs),
    /// Try the grammar on standard input. The bridge starts this to bound the cost of a grammar.
    #[command(hide = true)]
    TryGrammar,
}

/// The arguments of `gen-bridge serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// The replica.
    #[command(flatten)]
    pub replica: ReplicaArgs,
}

/// The engine, and the files of its model.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Engine.
    #[arg(long, env = "TANDEM_ENGINE", value_name = "ENGINE", value_parser = engine_kind())]
    pub engine: &'static EngineKind,
    /// Address of the engine: http://HOST:PORT or https://HOST:PORT
    #[arg(long, env = "TANDEM_ENGINE_URL", value_name = "URL", value_parser = engine_url)]
    pub engine_url: String,
    /// PEM file of the authorities that sign the engine's certificate [default: the system's]
    #[arg(long, env = "TANDEM_ENGINE_CA", value_name = "FILE")]
    pub engine_ca: Option<PathBuf>,
    /// File with the bearer token for the engine; its first token is used. Reloaded when it changes.
    #[arg(long, env = "TANDEM_ENGINE_TOKEN_FILE", value_name = "FILE")]
    pub engine_token_file: Option<PathBuf>,
    /// Model files of the engine, of which the bridge reads the tokenizer and the defaults: a .gguf file, a folder
    /// with one, a Hugging Face folder, or a repository in Hugging Face's cache. Weights are not read.
    #[arg(long, env = "TANDEM_MODEL", value_name = "PATH")]
    pub model: PathBuf,
    /// Model id in requests [default: the file's name without .gguf, or the folder's name]
    #[arg(long, env = "TANDEM_MODEL_ID", value_name = "ID")]
    pub model_id: Option<String>,
    /// Requests that may wait in the queue of the bridge. Further ones are rejected.
    #[arg(long, env = "TANDEM_MAX_QUEUE", default_value_t = EngineConfig::default().max_queue, value_name = "REQUESTS")]
    pub max_queue: usize,
    /// Outputs that the engine generates at once; the bridge keeps the others in its queue, where callers have equal
    /// shares [default: as many as the engine reports, else 64]
    #[arg(
        long,
        env = "TANDEM_MAX_RUNNING",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..),
        value_name = "OUTPUTS"
    )]
    pub max_running: Option<usize>,
    /// Tokens that a prompt may have [default: the engine's context]
    #[arg(long, env = "TANDEM_MAX_PROMPT_TOKENS", value_name = "TOKENS")]
    pub max_prompt_tokens: Option<usize>,
    /// Tokens that an output may have. A request for more gets this many [default: the engine's context]
    #[arg(
        long,
        env = "TANDEM_MAX_OUTPUT_TOKENS",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..),
        value_name = "TOKENS"
    )]
    pub max_output_tokens: Option<usize>,
}

impl From<EngineArgs> for Config {
    fn from(args: EngineArgs) -> Self {
        Self {
            kind: args.engine,
            target: Target { url: args.engine_url, ca: args.engine_ca, token_file: args.engine_token_file },
            model: args.model,
            model_id: args.model_id,
            max_queue: args.max_queue,
            max_running: args.max_running,
            max_prompt_tokens: args.max_prompt_tokens,
            max_output_tokens: args.max_output_tokens,
            grammar_trials: own_program(),
        }
    }
}

/// Reads the value of `--engine`.
fn engine_kind() -> impl TypedValueParser<Value = &'static EngineKind> {
    let values = ENGINES.iter().map(|kind| PossibleValue::new(kind.flag).help(kind.help));
    clap::builder::PossibleValuesParser::new(values).try_map(|flag| protocols::of_flag(&flag).ok_or("no such engine"))
}

/// Reads the value of `--engine-url`.
fn engine_url(text: &str) -> Result<String, String> {
    let uri = service_uri(text)?;
    let has_password = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    match uri.query() {
        _ if has_password => {
            Err("the address has a password, which logs would show: use --engine-token-file".to_owned())
        }
        Some(_) => Err("the address has a query, which logs would show: a token has its place in \
            --engine-token-file"
            .to_owned()),
        None => Ok(uri.to_string()),
    }
}
