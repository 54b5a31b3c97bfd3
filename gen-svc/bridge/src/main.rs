//! The binary `gen-bridge`.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use gen_bridge::args::{Args, Command, EngineArgs, Serve, USUAL_FLAGS};
use gen_bridge::start;
use gen_svc::program::{self, check, succeed};
use gen_svc::serve::{Replica, StallLimits};
use tandem_common::program::{Build, Invocation};
use tandem_core::grammar::trial;

/// While the engine does not answer for longer, health reports NOT_SERVING. A restart of the bridge does not help.
const STALL_LIMITS: StallLimits =
    StallLimits { slow: Duration::from_secs(3), most: Duration::MAX, check_interval: Duration::from_millis(500) };

fn main() -> ExitCode {
    let build = Build { name: "gen-bridge", commit: option_env!("TANDEM_COMMIT"), components: Vec::new() };
    let (Args { command }, invocation) = Invocation::parse(&build, &USUAL_FLAGS);
    let ended = match command {
        Command::Serve(args) => {
            let Serve { engine, replica } = *args;
            program::serve(replica_of(engine), replica, &build, &invocation)
        }
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

/// Returns the replica with the engine in another process.
fn replica_of(engine: EngineArgs) -> Replica {
    Replica::new("gen-bridge", |server, max_message_bytes| start::start(engine.into(), server, max_message_bytes))
        .with_stall_limits(STALL_LIMITS)
}
