//! The start of programs that serve a replica, once their command line is read.

use std::io::{self, Write as _};
use std::process::ExitCode;

use tandem_common::check::Check;
use tandem_common::program::{Build, Invocation};
use tandem_common::telemetry::{self, Telemetry};

use crate::args::ReplicaArgs;
use crate::serve::Replica;

/// Serves a replica until SIGTERM or a call of Drain; with `--check` or `--print-config`, checks or prints its settings
/// only.
///
/// # Errors
/// The settings, the model or an address cannot be used, or the server or the engine failed.
pub fn serve(replica: Replica, args: ReplicaArgs, build: &Build, invocation: &Invocation) -> anyhow::Result<ExitCode> {
    if args.dry_run.print_config {
        invocation.print_unknown_variables();
        return succeed(writeln!(io::stdout(), "{:#}", serde_json::Value::Object(invocation.settings())));
    }
    tokio::runtime::Runtime::new()?.block_on(async {
        if args.dry_run.check {
            telemetry::check(build, &args.telemetry)?;
            invocation.print_unknown_variables();
            return succeed(writeln!(io::stdout(), "{}", replica.check(args).await?));
        }
        let telemetry = Telemetry::start(build, &args.telemetry)?;
        telemetry::record_service(build, &invocation.settings());
        invocation.unknown_variables().iter().for_each(|problem| tracing::warn!("{problem}"));
        let ended = replica.run(args, &telemetry).await;
        telemetry.end().await;
        Ok(ended.map(|()| ExitCode::SUCCESS)?)
    })
}

/// Asks a running replica for its health.
///
/// # Errors
/// It is not SERVING.
pub fn check(check: Check) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(check.run())?;
    succeed(writeln!(io::stdout(), "SERVING"))
}

/// Returns the exit code of a program whose output is written.
///
/// # Errors
/// It cannot be written.
pub fn succeed(ended: io::Result<()>) -> anyhow::Result<ExitCode> {
    Ok(ended.map(|()| ExitCode::SUCCESS)?)
}
