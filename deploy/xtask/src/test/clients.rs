//! The clients of each language: the packages of `proto/clients`, and the suites of `tests/clients` that
//! replay the contract's vectors.

mod suites;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cargo::{self, Profile, Programs};
use crate::files;
use crate::layout::Layout;
use crate::setup::{self, venv};
use crate::steps::{self, Step};
use crate::tools::is_installed;
pub(crate) use suites::Language;
use suites::{Clients, SUITES, Suite};

/// The keys of `tests/contract/servers.json` whose servers have no state.
const STATELESS: &str = "render,many,generate,task,prompt_task,tokens";
/// The key whose vectors also hold where a bridge takes the place of gen-svc. llama.cpp has no log-probabilities of a
/// prompt, which those of `prompt_task` need.
const BRIDGED: &str = "task";

/// Tests the clients of one language or of all.
pub(super) fn run(layout: &Layout, only: Option<Language>) -> Result<ExitCode> {
    setup::ensure(layout)?;
    steps::run(steps(layout, only)?)
}

/// Returns the steps that test the clients of one language or of all. A language whose tools are missing
/// has a step that names them and succeeds.
pub(crate) fn steps(layout: &Layout, only: Option<Language>) -> Result<Vec<Step>> {
    let exchange = layout.tandem().join("exchange");
    files::remove_folder(&exchange)?;
    files::make_folder(&exchange)?;
    let programs = Programs::of(Profile::Dev)?.folder().to_owned();
    let newer = linked(layout, "newer", &programs, [("gen-svc", "newer-service"), ("render-svc", "newer-service")])?;
    let bridged = linked(layout, "bridged", &programs, [("gen-svc", "bridged-service"), ("render-svc", "render-svc")])?;
    venv::engines(layout)?;
    let (python, buf) = (venv::clients(layout)?, venv::buf(layout)?);
    let clients = Clients { layout, programs, newer, bridged, python, buf, exchange };
    let built = ["gen-svc", "render-svc", "gen-bridge", "newer-service", "bridged-service"];
    let services = cargo::build_command(layout, Profile::Dev, &built);
    let mut steps = vec![Step::new("services", services)];
    let chosen = SUITES.iter().filter(|suite| only.is_none_or(|language| language == suite.language));
    let (complete, incomplete): (Vec<_>, Vec<_>) = chosen.partition(|suite| suite.missing_tool().is_none());
    steps.extend(incomplete.iter().map(|suite| suite.skipped()));
    steps.extend(complete.iter().flat_map(|suite| suite.steps(&clients)));
    if only.is_none() {
        let read = |suite: &&Suite| Step::of(format!("{} reads", suite.name), (suite.read)(&clients));
        steps.push(Step::new("Rust page", rust(&clients, "page::the_program_of_the_page_answers")));
        steps.push(Step::new(
            "Rust writes",
            rust(&clients, "exchange::this_language_writes_the_bytes_of_every_request"),
        ));
        steps.extend(complete.iter().map(read));
        steps.push(Step::new("Rust reads", rust(&clients, "exchange::every_language_sends_the_request_of_the_vector")));
    }
    Ok(steps)
}

/// Makes a folder with links to programs that run in place of the services: the service's name, and the program's.
fn linked(layout: &Layout, name: &str, programs: &Path, links: [(&str, &str); 2]) -> Result<PathBuf> {
    let folder = layout.tandem().join(name);
    files::remove_folder(&folder)?;
    files::make_folder(&folder)?;
    for (service, program) in links {
        symlink(programs.join(program), folder.join(service)).context("cannot link a program")?;
    }
    Ok(folder)
}

/// Returns the command of one of Rust's tests that only these steps run.
fn rust(clients: &Clients<'_>, test: &str) -> Command {
    let mut command = cargo::command(clients.layout);
    command.args(["test", "--workspace", "--test", "full", "--", "--ignored", "--nocapture", "--exact"]);
    command.arg(format!("vectors::{test}")).env("TANDEM_EXCHANGE", &clients.exchange);
    command
}

impl Suite {
    fn steps(&self, clients: &Clients<'_>) -> Vec<Step> {
        let package = self.package.map(|package| Step::of(format!("{} package", self.name), package(clients)));
        let replay = Step::of(format!("{} vectors", self.name), (self.replay)(clients));
        let newer = Step::new(format!("{}, newer servers", self.name), self.again(clients, &clients.newer, STATELESS));
        let bridged = Step::new(format!("{}, a bridge", self.name), self.again(clients, &clients.bridged, BRIDGED));
        package.into_iter().chain([replay, newer, bridged]).map(|step| step.in_lane(self.name)).collect()
    }

    /// Returns the command that replays the vectors of these servers against other programs.
    fn again(&self, clients: &Clients<'_>, programs: &Path, servers: &str) -> Command {
        let mut command = (self.replay_again)(clients);
        command.env("TANDEM_PROGRAMS", programs).env("TANDEM_SERVICES", &clients.programs);
        command.env("TANDEM_SERVERS", servers).env_remove("TANDEM_EXCHANGE");
        command
    }

    fn missing_tool(&self) -> Option<&'static str> {
        self.tools.iter().find(|tool| !is_installed(tool)).copied()
    }

    fn skipped(&self) -> Step {
        Step::skipped(self.name, format!("{} is not installed", self.missing_tool().unwrap_or_default()))
    }
}
