//! The command line and the environment; nothing else reads either.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Parser, Subcommand};
use tandem_common::call::Credentials;
use tandem_common::serve::ServeArgs;
use tandem_common::telemetry::{LogArgs, TelemetryArgs};
use tonic::transport::Uri;

use crate::capabilities::Capabilities;
use crate::generation;
use crate::limits::Limits;
use crate::models::Sources;

/// Turns conversations into the exact prompts that models must be fed.
#[derive(Debug, Parser)]
#[command(name = "render-svc", version, disable_help_subcommand = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve rendering, and tasks in front of a generation service, over gRPC.
    ///
    /// Prints `render-svc listening on ADDRESS` once requests are served, after `render-svc metrics listening on ADDRESS` where they are;
    /// while models are loaded, health says NOT_SERVING and calls are refused. Logs go to standard error. SIGTERM ends it after what runs
    /// has finished. SIGHUP makes it look for models again: new ones are served, changed ones are read again, requests in flight go on
    /// with what they have. Example:
    /// render-svc serve --models models/ --generate http://127.0.0.1:50052
    Serve(Box<Serve>),
    /// Render requests from a file or standard input, without a server.
    ///
    /// A request is a JSON object: model (an id from --models, or a path); messages; tools, documents, template_args;
    /// add_generation_prompt, continue_final_message; adapter; template ("default", "tool_use", …); normalization ("capability" or
    /// "none"); capabilities (["SUPPORTS_SYSTEM_ROLE", …]); control_tokens ("tokens" or "literal"); render_time ("2025-07-04T09:05:03"); return (["token_ids", "offsets"]).
    /// Example:
    /// echo '{"model": "MODEL.gguf", "messages": [{"role": "user", "content": "Hi"}]}' | render-svc render
    #[command(mut_arg("log", |log| log.default_value("warn")))]
    Render(Render),
}

/// `render-svc serve`
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("sources").args(["models", "config"]).required(true).multiple(true)))]
pub struct Serve {
    /// Where the models are.
    #[command(flatten)]
    pub sources: SourceArgs,

    /// The generation service.
    #[command(flatten)]
    pub generation: GenerationArgs,

    /// Where to listen. Port 0 takes any free one.
    #[arg(
        long,
        env = "TANDEM_RENDER_LISTEN",
        default_value = "127.0.0.1:50051",
        value_name = "ADDRESS",
        help_heading = "Serving"
    )]
    pub listen: SocketAddr,

    /// What a conversation may ask for.
    #[command(flatten)]
    pub limits: Limits,

    /// The server.
    #[command(flatten)]
    pub serve: ServeArgs,

    /// What it tells of itself.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// The generation service that tasks use.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Generation")]
pub struct GenerationArgs {
    /// The generation service that tasks use: one address, or several, or a name with several behind it, which is looked up every five
    /// seconds. An answer whose replica breaks down goes on at another. Without it, RunTask is refused and all else works.
    #[arg(
        long,
        env = "TANDEM_GENERATE",
        value_name = "http[s]://HOST:PORT",
        value_delimiter = ',',
        value_parser = endpoint
    )]
    pub generate: Vec<Uri>,

    /// How long a task waits for a replica when none is well, in seconds.
    #[arg(long, env = "TANDEM_GENERATE_PATIENCE_SECONDS", default_value_t = 5, value_name = "SECONDS")]
    pub generate_patience_seconds: u64,

    /// Who signs its certificate, PEM. Needed for https.
    #[arg(long, env = "TANDEM_GENERATE_CA", value_name = "FILE", requires = "generate")]
    pub generate_ca: Option<PathBuf>,

    /// The certificate to show it, PEM, if it asks for one.
    #[arg(long, env = "TANDEM_GENERATE_CERT", value_name = "FILE", requires = "generate_key")]
    pub generate_cert: Option<PathBuf>,

    /// The certificate's key, PEM.
    #[arg(long, env = "TANDEM_GENERATE_KEY", value_name = "FILE", requires = "generate_cert")]
    pub generate_key: Option<PathBuf>,

    /// The bearer token to send it: the first in the file, which is read again when it changes.
    #[arg(long, env = "TANDEM_GENERATE_TOKEN_FILE", value_name = "FILE", requires = "generate")]
    pub generate_token_file: Option<PathBuf>,
}

impl Default for GenerationArgs {
    fn default() -> Self {
        Self {
            generate: Vec::new(),
            generate_patience_seconds: 5,
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
        let Self { generate, generate_patience_seconds, generate_ca, generate_cert, generate_key, generate_token_file } =
            self.clone();
        let identity = generate_cert.zip(generate_key).map(Into::into);
        let config = generation::Config {
            targets: generate,
            patience: Duration::from_secs(generate_patience_seconds),
            credentials: Credentials { ca: generate_ca, identity, token_file: generate_token_file },
        };
        (!config.targets.is_empty()).then_some(config)
    }
}

/// Where models are.
#[derive(Debug, Clone, clap::Args)]
pub struct SourceArgs {
    /// A model, or a folder of models; a model is a .gguf file or a Hugging Face folder. Weights are not needed. May be repeated.
    #[arg(long, env = "TANDEM_MODELS", value_name = "PATH", value_delimiter = ',')]
    pub models: Vec<PathBuf>,

    /// A TOML file that lists models and says what their own files do not. Each is a table `[[models]]` with path (relative to the
    /// file) and, all optional, id, aliases (a list), adapter (pinned for every request) and capabilities (a list that replaces what is
    /// inferred of the template, such as ["SUPPORTS_SYSTEM_ROLE", "REQUIRES_STRICT_TURNS"]).
    #[arg(long, env = "TANDEM_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl From<SourceArgs> for Sources {
    fn from(SourceArgs { models, config }: SourceArgs) -> Self {
        Self { models, config }
    }
}

/// `render-svc render`
#[derive(Debug, clap::Args)]
pub struct Render {
    /// The request, or with --jsonl one request per line. `-` is standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    pub input: PathBuf,

    /// Answer each line with one JSON line, in order: {prompt | hf_messages, adapter, warnings, token_ids?, offsets?} or {error}.
    /// Without it, the prompt is written, byte for byte.
    #[arg(long)]
    pub jsonl: bool,

    /// What the model's template can take, for requests that do not say so themselves: SUPPORTS_SYSTEM_ROLE, REQUIRES_STRICT_TURNS,
    /// SUPPORTS_TOOL_CALLS, SUPPORTS_REASONING, or none of them (""). Replaces what is inferred.
    #[arg(long, value_name = "NAMES", value_parser = capabilities)]
    pub capabilities: Option<Capabilities>,

    /// Where the models are that requests may name by id.
    #[command(flatten)]
    pub sources: SourceArgs,

    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Reads names of capabilities between commas.
fn capabilities(names: &str) -> Result<Capabilities, String> {
    Capabilities::from_names(names.split(',').map(str::trim).filter(|name| !name.is_empty()))
}

/// Reads a service's address; `http://` may be left out.
fn endpoint(text: &str) -> Result<Uri, String> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = text.parse().map_err(|e| format!("{e}; give it as http://HOST:PORT or https://HOST:PORT"))?;
    match (uri.scheme_str(), uri.port_u16()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err("give it as http://HOST:PORT or https://HOST:PORT".to_owned()),
    }
}
