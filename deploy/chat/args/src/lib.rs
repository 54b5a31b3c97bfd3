//! The arguments of `cargo xtask chat`. xtask parses them first, so that `--help` needs no build of
//! the client.

use std::path::PathBuf;

/// Talk to a model through both services.
///
/// Sets up the missing parts (libtorch, a small model), builds, starts gen-svc and render-svc on
/// free loopback ports, streams the answer, and stops both. Only the answer is written to stdout.
///
/// Without a prompt this is a conversation. Ctrl-C cancels an answer; /exit or Ctrl-D ends the
/// conversation. If stdin is not a terminal, each of its lines is one turn.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask chat \"Why is the sky blue?\"
  cargo xtask chat --temperature 0 --max-new-tokens 64 \"Count to ten.\"
  cargo xtask chat --system \"You are a pirate.\"
  printf 'My name is Ada.\\nWhat is my name?\\n' | cargo xtask chat
  cargo xtask chat --keep \"Hello\"                      keeps both running; prints how to call them
  cargo xtask chat --connect 127.0.0.1:41234 \"Hello\"   talks to a running render-svc")]
pub struct Args {
    /// The question. Without one, a conversation starts.
    pub prompt: Vec<String>,

    /// The model: a GGUF file or a model folder. [default: SmolLM2-135M-Instruct]
    #[arg(long, value_name = "PATH", conflicts_with = "connect")]
    pub model: Option<PathBuf>,

    /// Leave the services running; print their addresses, how to call them and how to stop them.
    #[arg(long, conflicts_with = "connect")]
    pub keep: bool,

    /// Talk to the render-svc at this address; set up and start nothing.
    #[arg(long, value_name = "HOST:PORT")]
    pub connect: Option<String>,

    /// How to generate.
    #[command(flatten)]
    pub generation: Generation,
}

/// How to generate an answer.
#[derive(Debug, clap::Args)]
pub struct Generation {
    /// The maximum length of an answer, in tokens.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_new_tokens: u32,

    /// Sampling temperature; 0 is greedy. [default: 0.2 for the default model, else the model's
    /// own]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f32>,

    /// Sample from the most probable tokens that together have this probability. [default: 0.9 for
    /// the default model, else the model's own]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f32>,

    /// Sampling seed, which makes an answer repeatable. [default: random, and printed after the
    /// answer]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// The system message.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
}

impl Generation {
    /// Sets unset options to the values that the default model's authors recommend. At temperature
    /// 1 a model this small loses the thread.
    #[must_use]
    pub fn or_recommended(mut self) -> Self {
        self.temperature = self.temperature.or(Some(0.2));
        self.top_p = self.top_p.or(Some(0.9));
        self
    }
}
