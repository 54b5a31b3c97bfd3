//! The arguments of `cargo xtask chat`. xtask includes this file and parses them first, so that
//! `--help` and a wrong flag need no build of the client.

use std::path::PathBuf;

/// Talk to a model through both services.
///
/// Sets up the missing parts (a small model; for another model libtorch), builds, starts gen-svc and render-svc on
/// free loopback ports, streams the answer, and stops both. Only the answer is written to stdout.
///
/// Without a prompt this is a conversation, with line editing and a history of messages. Enter
/// sends, Alt-Enter or a trailing backslash starts another line, and a paste of any length is one
/// message. Ctrl-C cancels an answer; /exit or Ctrl-D ends the conversation. If stdin is not a
/// terminal, each of its lines is one turn.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Commands in a conversation:
  /new           start a new conversation
  /system TEXT   set the system message; without TEXT show it
  /image FILE    attach an image to the next message
  /regen         answer the last message again, with another seed
  /help, /exit

Messages at the terminal are kept in .tandem/chat-history (mode 0600), without long pastes.

Examples:
  cargo xtask chat \"Why is the sky blue?\"
  cargo xtask chat --temperature 0 --max-new-tokens 64 \"Count to ten.\"
  cargo xtask chat --system \"You are a pirate.\"
  cargo xtask chat --model Qwen2.5-VL-3B-Instruct --image cat.png \"What is in this image?\"
  printf 'My name is Ada.\\nWhat is my name?\\n' | cargo xtask chat
  cargo xtask chat --keep \"Hello\"                        keeps both running; prints how to call them
  cargo xtask chat --status                              shows the services that --keep left
  cargo xtask chat --stop                                stops them
  cargo xtask chat --connect 127.0.0.1:41234 \"Hello\"     talks to a running render-svc
  cargo xtask chat --connect https://llm.example:443 --tls-ca ca.pem --token-file token

With an engine that you run already, here llama.cpp's (llama-server -m MODEL.gguf --metrics --port 8080):
  cargo xtask chat --engine-url http://127.0.0.1:8080 --model MODEL.gguf \"Hello\"")]
pub(crate) struct Args {
    /// The question. Without one, a conversation starts.
    pub(crate) prompt: Vec<String>,

    /// The model: a GGUF file or a model folder; with --connect, an id or alias. [default:
    /// SmolLM2-135M-Instruct; with --connect, the only model]
    #[arg(long, value_name = "PATH|ID")]
    pub(crate) model: Option<PathBuf>,

    /// Attach an image to the first message: JPEG, PNG, WebP, GIF or BMP, up to 32 MiB. Repeatable.
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,

    /// Leave the services running; print their addresses and how to call them.
    ///
    /// If an earlier --keep left services with the same model, this uses them.
    #[arg(long, conflicts_with = "connect")]
    pub(crate) keep: bool,

    /// Stop the services that --keep left.
    #[arg(long, conflicts_with_all = ["prompt", "model", "images", "keep", "connect", "engine_url", "status"])]
    pub(crate) stop: bool,

    /// Show the services that --keep left. Exits with 1 if none runs.
    #[arg(long, conflicts_with_all = ["prompt", "model", "images", "keep", "connect", "engine_url"])]
    pub(crate) status: bool,

    /// Do not read or write the file of earlier messages.
    #[arg(long)]
    pub(crate) no_history: bool,

    /// The engine to use.
    #[command(flatten)]
    pub(crate) engine: Engine,

    /// The render-svc to talk to.
    #[command(flatten)]
    pub(crate) connection: Connection,

    /// How to generate.
    #[command(flatten)]
    pub(crate) generation: Generation,
}

/// An engine that runs already, which generates in place of gen-svc.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct Engine {
    /// Start gen-bridge in front of the engine at this address, in place of gen-svc. --model then names the
    /// engine's model files; their weights are not read. TANDEM_ENGINE_TOKEN_FILE names a file with the engine's
    /// key.
    #[arg(long, value_name = "URL", conflicts_with = "connect")]
    pub(crate) engine_url: Option<String>,

    /// The kind of the engine, as in `gen-bridge serve --help`.
    #[arg(long, value_name = "ENGINE", default_value = "llama-cpp", requires = "engine_url")]
    pub(crate) engine: String,
}

/// How to reach a running render-svc.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Talk to the render-svc at this address; set up and start nothing. https:// means TLS.
    #[arg(long, value_name = "[http[s]://]HOST:PORT")]
    pub(crate) connect: Option<String>,

    /// PEM file of the certificate authorities that may sign the service's certificate. [default:
    /// those of the system]
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// PEM file of the client's certificate, for a service with --tls-client-ca.
    #[arg(long, value_name = "FILE", requires_all = ["connect", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,

    /// PEM file of the client certificate's private key.
    #[arg(long, value_name = "FILE", requires_all = ["connect", "tls_cert"])]
    pub(crate) tls_key: Option<PathBuf>,

    /// File whose first unexpired bearer token is sent, in the format of the services' own
    /// --token-file.
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub(crate) token_file: Option<PathBuf>,
}

impl Connection {
    /// Returns true if an option was given that only TLS has.
    #[must_use]
    pub(crate) fn wants_tls(&self) -> bool {
        self.tls_ca.is_some() || self.tls_cert.is_some()
    }
}

/// How to generate an answer.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Generation")]
pub(crate) struct Generation {
    /// The maximum length of an answer, in tokens.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_new_tokens: u32,

    /// Sampling temperature; 0 is greedy. [default: the model's own]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,

    /// Sample from the most probable tokens that together have this probability. [default: the
    /// model's own]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) top_p: Option<f32>,

    /// Sampling seed, which makes an answer repeatable. [default: random, and printed after the
    /// answer]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// The system message.
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
}
