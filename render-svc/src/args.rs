//! The command line and the environment; nothing else reads either.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use tandem_common::serve::ServeArgs;
use tandem_common::telemetry::LogArgs;
use tonic::transport::Uri;

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
    /// Prints `render-svc listening on ADDRESS` once requests are served; logs go to standard error. SIGTERM ends it after what runs
    /// has finished. Example:
    /// render-svc serve --models models/ --generate http://127.0.0.1:50052
    Serve(Serve),
    /// Render requests from a file or standard input, without a server.
    ///
    /// A request is a JSON object: model (an id from --models, or a path); messages; tools, documents, template_args;
    /// add_generation_prompt, continue_final_message; adapter; normalization ("capability" or "none"); render_time
    /// ("2025-07-04T09:05:03"); return (["token_ids"]). Example:
    /// echo '{"model": "MODEL.gguf", "messages": [{"role": "user", "content": "Hi"}]}' | render-svc render
    #[command(mut_arg("log", |log| log.default_value("warn")))]
    Render(Render),
}

/// `render-svc serve`
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Models to serve: a .gguf file, a Hugging Face folder, or a folder of these. Weights are not needed. May be repeated.
    #[arg(long, env = "TANDEM_MODELS", required = true, value_name = "PATH", value_delimiter = ',')]
    pub models: Vec<PathBuf>,

    /// The generation service that tasks use. Without it, RunTask is refused and all else works.
    #[arg(long, env = "TANDEM_GENERATE", value_name = "http://HOST:PORT", value_parser = endpoint)]
    pub generate: Option<Uri>,

    /// Where to listen. Port 0 takes any free one.
    #[arg(
        long,
        env = "TANDEM_RENDER_LISTEN",
        default_value = "127.0.0.1:50051",
        value_name = "ADDRESS",
        help_heading = "Serving"
    )]
    pub listen: SocketAddr,

    /// The server.
    #[command(flatten)]
    pub serve: ServeArgs,

    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

/// `render-svc render`
#[derive(Debug, clap::Args)]
pub struct Render {
    /// The request, or with --jsonl one request per line. `-` is standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    pub input: PathBuf,

    /// Answer each line with one JSON line, in order: {prompt | hf_messages, adapter, warnings, token_ids?} or {error}. Without it, the
    /// prompt is written, byte for byte.
    #[arg(long)]
    pub jsonl: bool,

    /// Models that requests may name by id: a .gguf file, a Hugging Face folder, or a folder of these. May be repeated.
    #[arg(long, env = "TANDEM_MODELS", value_name = "PATH", value_delimiter = ',')]
    pub models: Vec<PathBuf>,

    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Reads a service's address; `http://` may be left out.
fn endpoint(text: &str) -> Result<Uri, String> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = text.parse().map_err(|e| format!("{e}; give it as http://HOST:PORT"))?;
    match (uri.scheme_str(), uri.port_u16()) {
        (Some("http"), Some(_)) => Ok(uri),
        _ => Err("give it as http://HOST:PORT".to_owned()),
    }
}
