//! The generation service with its engine, and a model that computes nothing. `cargo xtask bench
//! gateway` starts it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use gen_svc::serve::Server;
use tandem_common::serve::{self, SecureListener, Security, SecurityArgs, ServeArgs, Shutdown};
use tandem_core::engine::{Config, Engine};
use tandem_tests::fakes::model::letters;

/// Serves gen-svc's API with a model that computes nothing and generates letters.
#[derive(Debug, Parser)]
#[command(name = "gen-svc-mock")]
struct Args {
    /// The model of the tokenizer: a Hugging Face folder or a GGUF file. Weights are not needed.
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// The address to listen on. Port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Duration of an engine step, in milliseconds.
    #[arg(long, default_value_t = 0, value_name = "MILLISECONDS")]
    step_ms: u64,
}

fn main() -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(run(Args::parse()))
}

async fn run(args: Args) -> anyhow::Result<()> {
    let security = Security::open(&SecurityArgs::default())?;
    let listener = serve::listen(args.listen, &security).await?;
    let step = Duration::from_millis(args.step_ms);
    let start = move || Engine::start_with(Config::new(args.model), move |config| letters(&config.model, step));
    let (engine, _thread) = tokio::task::spawn_blocking(start).await??;
    let shutdown = Shutdown::on_signals()?;
    writeln!(std::io::stdout(), "gen-svc-mock listening on {}", listener.local_addr()?)?;
    let server = Server::of(engine, ServeArgs::default().max_message_bytes);
    gen_svc::serve::serve(server, SecureListener { listener, security }, None, &ServeArgs::default(), shutdown).await?;
    Ok(())
}
