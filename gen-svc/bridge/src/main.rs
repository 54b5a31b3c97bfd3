//! The binary `gen-bridge`.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use gen_bridge::args::{Args, Command, EngineArgs, Serve, USUAL_FLAGS};
use gen_bridge::start;
use gen_svc::serve::{Replica, StallLimits};
use tandem_common::check::Check;
use tandem_common::program::{Build, Invocation};
use tandem_common::telemetry::{self, Telemetry};
use tandem_core::grammar::trial;

/// While the engine does not answer for longer, health reports NOT_SERVING. A restart of the bridge does not help.
const STALL_LIMITS: StallLimits =
    StallLimits { slow: Duration::from_secs(3), most: Duration::MAX, check_interval: Duration::from_millis(500) };

fn main() -> ExitCode {
    let build = Build { name: "gen-bridge", commit: option_env!("TANDEM_COMMIT"), components: Vec::new() };
    let (Args { command }, invocation) = Invocation::parse(&build, &USUAL_FLAGS);
    let ended = match command {
        Command::Serve(args) if args.replica.dry_run.print_config => print_config(&invocation),
        Command::Serve(args) if args.replica.dry_run.check => check_serve(*args, &build, &invocation),
        Command::Serve(args) => run_server(*args, &build, &invocation),
        Command::Check(args) => check((*args).into()),
        Command::Completions(args) => succeed(invocation.print_completions(args)),
        Command::Man(args) => succeed(invocation.write_man(&args)),
        Command::TryGrammar => succeed(trial::run(io::stdin())),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("gen-bridge: {error:#}");
        ExitCode::FAILURE
    })
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

fn check(check: Check) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(check.run())?;
    succeed(writeln!(io::stdout(), "SERVING"))
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

/// Returns the replica with the engine in another process.
fn replica_of(engine: EngineArgs) -> Replica {
    Replica::new("gen-bridge", |server, max_message_bytes| start::start(engine.into(), server, max_message_bytes))
        .with_stall_limits(STALL_LIMITS)
}
