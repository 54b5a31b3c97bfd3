//! The binary `gen-svc`.

use std::io;
use std::process::ExitCode;

use gen_svc::args::{Args, Command, EngineArgs, Generate, Serve, TimeSteps, USUAL_FLAGS};
use gen_svc::cli;
use gen_svc::program::{self, check, succeed};
use gen_svc::serve::Replica;
use tandem_common::program::{Build, Invocation};
use tandem_common::telemetry;
use tandem_core::grammar::trial;
use tandem_core::library::Library;
use tandem_kernels::IsaLevel;

/// The library that computes in addition to the CPU's kernels.
#[cfg(feature = "torch")]
const LIBRARY: &dyn Library = &tandem_torch::Libtorch;
#[cfg(not(feature = "torch"))]
const LIBRARY: &dyn Library = &gen_svc::load::WithoutLibrary;

fn main() -> ExitCode {
    let build = build();
    let (Args { command }, invocation) = Invocation::parse(&build, &USUAL_FLAGS);
    if matches!(command, Command::Serve(_) | Command::Generate(_)) {
        LIBRARY.prepare_process();
    }
    let ended = match command {
        Command::Serve(args) => {
            let Serve { engine, replica } = *args;
            program::serve(replica_of(engine), replica, &build, &invocation)
        }
        Command::Generate(args) => generate(args),
        Command::Check(args) => check(args.into()),
        Command::Completions(args) => succeed(invocation.print_completions(args)),
        Command::Man(args) => succeed(invocation.write_man(&args)),
        Command::TryGrammar => succeed(trial::run(io::stdin())),
        Command::TimeSteps(args) => time_steps(args),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("gen-svc: {error:#}");
        ExitCode::FAILURE
    })
}

/// The commit is an environment variable of the build, so that a commit rebuilds nothing.
fn build() -> Build {
    let components = vec![LIBRARY.version(), ("kernels on this machine", IsaLevel::detect().name().to_owned())];
    Build { name: "gen-svc", commit: option_env!("TANDEM_COMMIT"), components }
}

/// Returns the replica with the engine of this process.
fn replica_of(engine: EngineArgs) -> Replica {
    Replica::new("gen-svc", |server, max_message_bytes| server.load(engine.into(), LIBRARY, max_message_bytes))
}

fn generate(args: Generate) -> anyhow::Result<ExitCode> {
    telemetry::init(&args.log)?;
    Ok(cli::run(args, LIBRARY)?)
}

fn time_steps(args: TimeSteps) -> anyhow::Result<ExitCode> {
    telemetry::init(&args.log)?;
    Ok(cli::time_steps(args, LIBRARY)?)
}
