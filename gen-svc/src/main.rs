//! The binary `gen-svc`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use gen_svc::args::{Args, Command, EngineArgs, Generate, Serve, TimeSteps, USUAL_FLAGS};
use gen_svc::cli;
use gen_svc::serve::Replica;
use tandem_common::check::Check;
use tandem_common::program::{Build, Invocation};
use tandem_common::telemetry::{self, Telemetry};
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
        Command::Serve(args) if args.replica.dry_run.print_config => print_config(&invocation),
        Command::Serve(args) if args.replica.dry_run.check => check_serve(*args, &build, &invocation),
        Command::Serve(args) => run_server(*args, &build, &invocation),
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

fn succeed(ended: io::Result<()>) -> anyhow::Result<ExitCode> {
    Ok(ended.map(|()| ExitCode::SUCCESS)?)
}

fn print_config(invocation: &Invocation) -> anyhow::Result<ExitCode> {
    invocation.print_unknown_variables();
    succeed(writeln!(io::stdout(), "{:#}", serde_json::Value::Object(invocation.settings())))
}

fn check_serve(args: Serve, build: &Build, invocation: &Invocation) -> anyhow::Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let Serve { engine, replica } = args;
        telemetry::check(build, &replica.telemetry)?;
        invocation.print_unknown_variables();
        succeed(writeln!(io::stdout(), "{}", replica_of(engine).check(replica).await?))
    })
}

/// Returns the replica with the engine of this process.
fn replica_of(engine: EngineArgs) -> Replica {
    Replica::new("gen-svc", |server, max_message_bytes| server.load(engine.into(), LIBRARY, max_message_bytes))
}

fn check(check: Check) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(check.run())?;
    succeed(writeln!(io::stdout(), "SERVING"))
}

fn generate(args: Generate) -> anyhow::Result<ExitCode> {
    telemetry::init(&args.log)?;
    Ok(cli::run(args, LIBRARY)?)
}

fn time_steps(args: TimeSteps) -> anyhow::Result<ExitCode> {
    telemetry::init(&args.log)?;
    Ok(cli::time_steps(args, LIBRARY)?)
}

fn run_server(args: Serve, build: &Build, invocation: &Invocation) -> anyhow::Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let Serve { engine, replica } = args;
        let telemetry = Telemetry::start(build, &replica.telemetry)?;
        telemetry::record_service(build, &invocation.settings());
        invocation.unknown_variables().iter().for_each(|problem| tracing::warn!("{problem}"));
        let ended = replica_of(engine).run(replica, &telemetry).await;
        telemetry.end().await;
        Ok(ended.map(|()| ExitCode::SUCCESS)?)
    })
}
